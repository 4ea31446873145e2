//! Reading frames from the store into the arena: ranged reads whose chunks are copied straight to
//! where ranks will see them, then every frame is checked. A wrong frame is fetched once more, then
//! refused with its key, step and slice.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use batchweave_arena::wire::{ErrorName, Fault};
use batchweave_arena::{ArenaError, FrameBuf, Segment};
use batchweave_core::ids::Step;
use batchweave_core::tgb::plan::{Read, coalesce};
use batchweave_core::tgb::{FrameHeader, verify};
use batchweave_store::{ErrorKind, StoreError};
use futures::TryStreamExt;
use futures::future::try_join_all;
use rand::RngExt;

use crate::attempts::below_watermark;
use crate::hub::{Head, Hub, Reads};
use crate::layouts::Shape;
use crate::plan::{FrameId, Location};

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);

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

/// Why a read did not come to its end.
#[derive(Debug, thiserror::Error)]
enum FillError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Arena(#[from] ArenaError),
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
    if let Err(why) = fill(hub, &read, &targets).await {
        let fault = Arc::new(unreadable(hub, &why, &read.key, targets[0].id).await);
        hub.metrics.refused_frames.inc_by(targets.len() as u64);
        let all = targets.iter().map(|t| (t.id, Err(fault.clone())));
        return finish(hub, all);
    }
    let mut wrong = Vec::new();
    let mut good = BTreeMap::new();
    for target in targets {
        match check(hub, &target) {
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
    if let Err(why) = fill(hub, &target.read(), targets).await {
        hub.metrics.refused_frames.inc();
        return Err(Arc::new(
            unreadable(hub, &why, &target.from.key, target.id).await,
        ));
    }
    check(hub, target).map_err(|why| {
        hub.metrics.checksum_failures.inc();
        hub.metrics.refused_frames.inc();
        tracing::error!(step = target.id.step, slice = target.id.slice, %why, "a frame is refused");
        let message = format!("{why}, also when fetched again");
        let fault = Fault::new(ErrorName::CorruptData, message).at_step(target.id.step);
        Arc::new(fault.at_key(&*target.from.key))
    })
}

/// Checks what stands in the arena now, and learns the layout.
fn check(hub: &Hub, target: &Target) -> Result<Arc<Loaded>, String> {
    let lease = target
        .segment
        .lease(target.offset, target.from.bytes())
        .map_err(|why| why.to_string())?;
    let frame = lease.as_slice();
    let expect = target.from.expect(target.id);
    let payload = verify(frame, &expect).map_err(|why| why.to_string())?;
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

/// Reads until it is done; tries again without end when the store fails, since ranks have deadlines
/// of their own and are told. Only what can't get better is an error.
async fn fill(hub: &Arc<Hub>, read: &Read, targets: &[Target]) -> Result<(), FillError> {
    let pieces = read.pieces();
    let piece = |range: Range<u64>| async move {
        let mut pause = RETRY_FIRST;
        loop {
            match copy(hub, &read.key, range.clone(), targets).await {
                Ok(()) => {
                    hub.store_health(Reads::Data, None);
                    return Ok(());
                }
                Err(FillError::Store(why)) if !is_final(why.kind) => {
                    hub.store_health(Reads::Data, Some(&why))
                }
                Err(why) => return Err(why),
            }
            let jitter = rand::rng().random_range(0.5..1.5);
            tokio::time::sleep(pause.mul_f64(jitter)).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    };
    try_join_all(pieces.into_iter().map(piece)).await.map(drop)
}

fn is_final(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound | ErrorKind::Range | ErrorKind::Invalid
    )
}

/// One request; its chunks go to their frames as they come.
async fn copy(
    hub: &Hub,
    key: &str,
    range: Range<u64>,
    targets: &[Target],
) -> Result<(), FillError> {
    let Ok(_permit) = hub.permits.acquire().await else {
        // Never closed; the daemon's end cancels this task.
        return std::future::pending().await;
    };
    let mut leases = leases(targets, &range)?;
    let mut at = range.start;
    let ask = || async {
        let mut chunks = hub.store.get_range(key, range.clone()).await?;
        let first = chunks.try_next().await?;
        Ok::<_, StoreError>((first, chunks))
    };
    let again = || hub.metrics.hedged_reads.inc();
    let (mut next, mut chunks) = hub.hedges.race(ask, again).await?;
    while let Some(chunk) = next {
        let fits = (range.end - at).min(chunk.len() as u64) as usize;
        scatter(&mut leases, at, &chunk[..fits])?;
        at += fits as u64;
        hub.metrics.bytes_fetched.inc_by(chunk.len() as u64);
        next = chunks.try_next().await?;
    }
    Ok(())
}

/// The parts of the targets that `range` fills, each with its place in the object.
fn leases(targets: &[Target], range: &Range<u64>) -> Result<Vec<(u64, FrameBuf)>, ArenaError> {
    let inside = targets
        .iter()
        .filter(|t| t.from.range.start < range.end && range.start < t.from.range.end);
    let lease = |target: &Target| {
        let start = target.from.range.start.max(range.start);
        let end = target.from.range.end.min(range.end);
        let offset = target.offset + (start - target.from.range.start);
        Ok((start, target.segment.lease(offset, end - start)?))
    };
    inside.map(lease).collect()
}

/// Writes bytes that stand at `at` in the object to the frames they belong to.
fn scatter(
    leases: &mut [(u64, FrameBuf)],
    mut at: u64,
    mut bytes: &[u8],
) -> Result<(), ArenaError> {
    let first = leases.partition_point(|(start, lease)| start + lease.length() <= at);
    for (start, lease) in &mut leases[first..] {
        let inside = at - *start;
        let count = (lease.length() - inside).min(bytes.len() as u64);
        let (head, rest) = bytes.split_at(count as usize);
        lease.write_at(inside, head)?;
        (at, bytes) = (at + count, rest);
        if bytes.is_empty() {
            break;
        }
    }
    Ok(())
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
