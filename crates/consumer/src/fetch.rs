//! Reading frames from the store into the arena: ranged reads that go straight to where ranks will see
//! them, summed as they come, then every frame is checked. A wrong frame is fetched once more, then
//! refused with its key, step and slice.

mod fill;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use batchweave_arena::wire::{ErrorName, Fault};
use batchweave_arena::{FrameBuf, Segment};
use batchweave_core::crc::Crc32c;
use batchweave_core::ids::Step;
use batchweave_core::tgb::plan::{Read, coalesce};
use batchweave_core::tgb::{FrameHeader, verify_summed};
use batchweave_store::{ErrorKind, StoreError};

use self::fill::{FillError, fill};
use crate::attempts::below_watermark;
use crate::hub::{Head, Hub};
use crate::layouts::Shape;
use crate::plan::{FrameId, Location};

/// A frame to read and where to put it.
pub(crate) struct Target {
    pub(crate) id: FrameId,
    pub(crate) from: Location,
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u64,
}

impl Target {
    fn read(&self) -> Read {
        let mut reads = coalesce(&[self.from.frame(self.id)], u64::MAX);
        reads.swap_remove(0)
    }
}

/// A frame that stands in the arena and is right.
pub(crate) struct Loaded {
    pub(crate) shape: Arc<Shape>,
    /// CRC32C of the payload.
    pub(crate) crc: u32,
    /// Held as long as the frame is: nobody can write there.
    _lease: FrameBuf,
}

type Outcome = Result<Arc<Loaded>, Arc<Fault>>;

/// Starts reading `targets`, which come sorted, so that neighbours in the store are neighbours here.
pub(crate) fn start(hub: &Arc<Hub>, targets: Vec<Target>) {
    let frames: Vec<_> = targets.iter().map(|t| t.from.frame(t.id)).collect();
    let reads = coalesce(&frames, hub.read_bytes);
    let mut targets = targets.into_iter();
    for read in reads {
        // Reads keep the order of their frames, so each takes as many targets as it has frames.
        let own: Vec<Target> = targets.by_ref().take(read.frames.len()).collect();
        let hub = Arc::clone(hub);
        tokio::spawn(async move {
            let stop = hub.stop.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = run(&hub, read, own) => {}
            }
        });
    }
}

async fn run(hub: &Arc<Hub>, read: Read, targets: Vec<Target>) {
    let sums = match fill(hub, &read, &targets).await {
        Ok(sums) => sums,
        Err(why) => {
            let fault = Arc::new(unreadable(hub, &why, &read.key, targets[0].id).await);
            hub.metrics.refused_frames.inc_by(targets.len() as u64);
            let all = targets.iter().map(|t| (t.id, Err(fault.clone())));
            return finish(hub, all);
        }
    };
    let mut wrong = Vec::new();
    let mut good = BTreeMap::new();
    for (target, sum) in targets.into_iter().zip(&sums) {
        match check(hub, &target, sum) {
            Ok(shape) => _ = good.insert(target.id, shape),
            Err(why) => wrong.push((target, why)),
        }
    }
    finish(hub, good.into_iter().map(|(id, shape)| (id, Ok(shape))));
    for (target, why) in wrong {
        hub.metrics.checksum_failures.inc();
        tracing::warn!(step = target.id.step, slice = target.id.slice, %why, "fetching a wrong frame again");
        let outcome = once_more(hub, &target).await;
        finish(hub, [(target.id, outcome)]);
    }
}

fn finish(hub: &Arc<Hub>, outcomes: impl IntoIterator<Item = (FrameId, Outcome)>) {
    hub.apply(|state| {
        for (id, outcome) in outcomes {
            state.engine.fetched(id, outcome);
        }
    });
}

async fn once_more(hub: &Arc<Hub>, target: &Target) -> Outcome {
    let targets = std::slice::from_ref(target);
    let sums = match fill(hub, &target.read(), targets).await {
        Ok(sums) => sums,
        Err(why) => {
            hub.metrics.refused_frames.inc();
            let fault = unreadable(hub, &why, &target.from.key, target.id).await;
            return Err(Arc::new(fault));
        }
    };
    check(hub, target, &sums[0]).map_err(|why| {
        hub.metrics.checksum_failures.inc();
        hub.metrics.refused_frames.inc();
        tracing::error!(step = target.id.step, slice = target.id.slice, %why, "a frame is refused");
        let message = format!("{why}, also when fetched again");
        let fault = Fault::new(ErrorName::CorruptData, message).at_step(target.id.step);
        Arc::new(fault.at_key(&*target.from.key))
    })
}

/// Checks what stands in the arena now, by the sum that was made as it came, and learns the layout.
fn check(hub: &Hub, target: &Target, sum: &Crc32c) -> Result<Arc<Loaded>, String> {
    let lease = target
        .segment
        .lease(target.offset, target.from.bytes())
        .map_err(|why| why.to_string())?;
    let frame = lease.as_slice();
    let expect = target.from.expect(target.id);
    let payload = verify_summed(frame, sum, &expect).map_err(|why| why.to_string())?;
    let mut shapes = hub.shapes.lock().unwrap_or_else(PoisonError::into_inner);
    let shape = shapes.of(&frame[payload]).map_err(|why| {
        let (key, FrameId { step, slice }) = (&target.from.key, target.id);
        format!("{key} (step {step}, slice {slice}): {why}")
    })?;
    let header = FrameHeader::decode(frame).map_err(|fault| expect.error(fault).to_string())?;
    Ok(Arc::new(Loaded {
        shape,
        crc: header.payload_crc,
        _lease: lease,
    }))
}

/// What ranks are told when an object can't be read. A missing one may be reclaimed: the log says.
async fn unreadable(hub: &Hub, why: &FillError, key: &str, id: FrameId) -> Fault {
    let step = id.step;
    let fault = match why {
        FillError::Store(why) => store_fault(hub, why, key, step).await,
        FillError::Arena(_) => Fault::new(ErrorName::Internal, why.to_string()),
    };
    tracing::error!(step, key, %fault, "data can't be read");
    fault.at_step(step).at_key(key)
}

/// An object that somebody deleted: what is gone with it and what remains.
fn missing(head: &Head, (first, last): (Step, Step), detail: &str) -> Fault {
    let from = head.watermark;
    let remains = match (first > from, last + 1 < head.next_step) {
        (true, true) => format!(
            "{from} to {} and {} to {}",
            first - 1,
            last + 1,
            head.next_step - 1
        ),
        (true, false) => format!("{from} to {}", first - 1),
        (false, true) => format!("{} to {}", last + 1, head.next_step - 1),
        (false, false) => "none".to_owned(),
    };
    let message = format!(
        "the log names an object that is not in the store ({detail}): slices of steps {first} to {last} are \
         gone, steps {remains} are not in it"
    );
    let remedy = format!(
        "restore the object from a backup or a bucket version, or pass over the steps in a new attempt after \
         `batchweave quarantine {first}..{last} --reason ...`; `batchweave verify` lists all that is missing"
    );
    Fault::new(ErrorName::MissingData, message).remedy(remedy)
}

async fn store_fault(hub: &Hub, why: &StoreError, key: &str, step: Step) -> Fault {
    match why.kind {
        ErrorKind::NotFound => {
            let head = hub.look_again().await;
            if step < head.watermark {
                below_watermark(step, head.watermark)
            } else {
                let steps = { hub.lock().engine.steps_in(key) };
                missing(&head, steps.unwrap_or((step, step)), &why.detail)
            }
        }
        ErrorKind::Range => {
            let message = format!("the object is shorter than the log says: {}", why.detail);
            Fault::new(ErrorName::CorruptData, message)
        }
        _ => Fault::new(ErrorName::Internal, why.to_string()),
    }
}
