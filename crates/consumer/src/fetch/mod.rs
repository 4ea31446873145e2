//! Reading frames from the store into the arena: ranged reads that go straight to where ranks will see
//! them, summed as they come, then every frame is checked. A wrong frame is fetched again on another
//! connection, and refused with its key, step and slice when it is wrong in the same way once more.

mod concurrency_limit;
mod fault;
mod fill;
pub(crate) mod hedge;
mod index;
pub(crate) mod permits;
mod retry;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use batchweave_arena::{FrameBuf, Segment};
use batchweave_core::crc::Crc32c;
use batchweave_core::tgb::ranges::{Read, coalesce};
use batchweave_core::tgb::{FrameHeader, verify_summed};
use batchweave_wire::Fault;

use self::fault::{head_for, unreadable};
use self::fill::fill;
pub(crate) use self::index::{Lookup, locate, put_told};
use crate::engine::layouts::Shape;
use crate::engine::location::{FrameId, Location};
use crate::node::Hub;

/// What is wrong is read this many times at most, unless two reads agree before.
const READS_MAX: u32 = 5;

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
    let sums = match fill(hub, &read, &targets, false).await {
        Ok(sums) => sums,
        Err(why) => {
            let head = head_for(hub, &why).await;
            let at = (read.key.as_str(), targets[0].id.step);
            let fault = Arc::new(unreadable(hub, &head, &why, at, &[]));
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
        let outcome = again(hub, &target, why).await;
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

/// Reads a wrong frame until it is right, or wrong twice in the same way: then the object is, not the way
/// to it.
async fn again(hub: &Arc<Hub>, target: &Target, mut why: String) -> Outcome {
    let (targets, step) = (std::slice::from_ref(target), target.id.step);
    let mut agree = false;
    for _ in 1..READS_MAX {
        hub.metrics.checksum_failures.inc();
        tracing::warn!(step, slice = target.id.slice, %why, "fetching a wrong frame again");
        let sums = match fill(hub, &target.read(), targets, true).await {
            Ok(sums) => sums,
            Err(why) => {
                hub.metrics.refused_frames.inc();
                let head = head_for(hub, &why).await;
                let at = (&*target.from.key, step);
                return Err(Arc::new(unreadable(hub, &head, &why, at, &[])));
            }
        };
        match check(hub, target, &sums[0]) {
            Ok(loaded) => return Ok(loaded),
            Err(now) => agree = std::mem::replace(&mut why, now) == why,
        }
        if agree {
            break;
        }
    }
    hub.metrics.checksum_failures.inc();
    hub.metrics.refused_frames.inc();
    tracing::error!(step, slice = target.id.slice, %why, "a frame is refused");
    Err(Arc::new(fault::corrupt(
        &why,
        agree,
        &target.from.key,
        step,
    )))
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
