//! Reading frames from the store into the arena: ranged reads go straight to the bytes that ranks map, are
//! summed while they arrive, and then each frame is verified. A corrupt frame is read again on another
//! connection, and refused with its key, step and slice when two reads agree.
//!
//! Nothing here knows the node. It passes frames to [`Fetcher::start`] and implements [`FetchEvents`], on
//! which outcomes come back. A trait and not a queue with a task of its own: reads are spawned in the order
//! in which the engine asks for them, with no other task between, so a simulated run is the same for the
//! same seed. The number of reads that wait is bounded by the frames that fit into the arena, since the
//! engine reserves the room before it asks.
//!
//! - `target`: a frame to read and a frame that was read;
//! - `fill` reads bodies into the arena, `index` finds the locations of slices;
//! - `retry` repeats failed reads, `hedge` repeats late ones, `fault` explains final failures;
//! - `permits` limits the reads in flight, to the number that `concurrency_limit` finds.

mod concurrency_limit;
mod fault;
mod fill;
mod hedge;
mod index;
mod permits;
mod retry;
mod target;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use batchweave_core::crc::Crc32c;
use batchweave_core::ids::Step;
use batchweave_core::tgb::ranges::{Read, coalesce};
use batchweave_core::tgb::{FrameHeader, verify_summed};

use self::fault::{head_after, unreadable};
use self::fill::fill;
use self::hedge::Hedges;
pub(crate) use self::index::{Lookup, LookupOutcome, locate, locate_from_log};
use self::permits::Permits;
pub(crate) use self::target::{Loaded, Outcome, Target};
use crate::engine::layouts::ShapeCache;
use crate::engine::location::FrameId;
use crate::resources::Resources;
use crate::stream_head::Head;

/// A corrupt object is read at most this many times, unless two reads agree before.
const READS_MAX: u32 = 5;

/// The owner of the frames: takes the outcomes of fetches, and knows the stream.
pub(crate) trait FetchEvents: Send + Sync + 'static {
    /// Takes the outcomes of fetches.
    fn fetched(self: &Arc<Self>, outcomes: Vec<(FrameId, Outcome)>);

    /// The stream as far as it is known.
    fn head(&self) -> Head;

    /// Reads the log to its head, and returns what is then known; `None` when it can't be read in time.
    fn refresh_head(&self) -> impl Future<Output = Option<Head>> + Send;

    /// The steps that are known to have slices in an object.
    fn steps_in(&self, key: &str) -> Vec<Step>;
}

/// Reads from the store, within the limits on doing so.
pub(crate) struct Fetcher {
    resources: Arc<Resources>,
    permits: Permits,
    hedges: Hedges,
    /// The largest range of one read.
    read_bytes: u64,
    shapes: Mutex<ShapeCache>,
}

impl Fetcher {
    /// A fetcher that has at most `concurrency` reads of frames in flight.
    pub(crate) fn new(resources: Arc<Resources>, concurrency: usize, read_bytes: u64) -> Self {
        let allowed = resources.metrics.reads_allowed.clone();
        Self {
            permits: Permits::new(concurrency, allowed, Arc::clone(&resources.context)),
            hedges: Hedges::new(Arc::clone(&resources.context)),
            read_bytes,
            shapes: Mutex::default(),
            resources,
        }
    }

    /// Starts reading `targets`, which are sorted, so that neighbours in the store are neighbours here.
    pub(crate) fn start<E: FetchEvents>(self: &Arc<Self>, events: &Arc<E>, targets: Vec<Target>) {
        let frames: Vec<_> = targets.iter().map(|t| t.from.frame(t.id)).collect();
        let reads = coalesce(&frames, self.read_bytes);
        let mut targets = targets.into_iter();
        for read in reads {
            // Reads keep the order of their frames, so each takes as many targets as it has frames.
            let own: Vec<Target> = targets.by_ref().take(read.frames.len()).collect();
            let (fetcher, events) = (Arc::clone(self), Arc::clone(events));
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = fetcher.resources.stop.cancelled() => {}
                    () = run(&fetcher, &events, read, own) => {}
                }
            });
        }
    }

    /// Verifies a frame in the arena by the sum that was computed while it arrived, and finds its layout.
    fn verify(&self, target: &Target, sum: &Crc32c) -> Result<Arc<Loaded>, String> {
        let buffer = target
            .segment
            .reserve(target.offset, target.from.bytes())
            .map_err(|why| why.to_string())?;
        let frame = buffer.as_slice();
        let expect = target.from.expect(target.id);
        let payload = verify_summed(frame, sum, &expect).map_err(|why| why.to_string())?;
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = shapes.get_or_parse(&frame[payload]).map_err(|why| {
            let (key, FrameId { step, slice }) = (&target.from.key, target.id);
            format!("{key} (step {step}, slice {slice}): {why}")
        })?;
        let header = FrameHeader::decode(frame).map_err(|fault| expect.error(fault).to_string())?;
        Ok(Arc::new(Loaded {
            shape,
            crc: header.payload_crc,
            _reserved: buffer,
        }))
    }
}

async fn run<E: FetchEvents>(fetcher: &Fetcher, events: &Arc<E>, read: Read, targets: Vec<Target>) {
    let sums = match fill(fetcher, &read, &targets, false).await {
        Ok(sums) => sums,
        Err(why) => {
            let head = head_after(events.as_ref(), &why).await;
            let step = targets[0].id.step;
            let fault = unreadable(events.as_ref(), &head, &why, &read.key, step, &[]);
            let fault = Arc::new(fault);
            let refused = &fetcher.resources.metrics.refused_frames;
            refused.inc_by(targets.len() as u64);
            let all = targets.iter().map(|t| (t.id, Err(fault.clone())));
            return events.fetched(all.collect());
        }
    };
    let mut corrupt = Vec::new();
    let mut good = BTreeMap::new();
    for (target, sum) in targets.into_iter().zip(&sums) {
        match fetcher.verify(&target, sum) {
            Ok(loaded) => _ = good.insert(target.id, loaded),
            Err(why) => corrupt.push((target, why)),
        }
    }
    let outcomes = good.into_iter().map(|(id, loaded)| (id, Ok(loaded)));
    events.fetched(outcomes.collect());
    for (target, why) in corrupt {
        let outcome = read_again(fetcher, events.as_ref(), &target, why).await;
        events.fetched(vec![(target.id, outcome)]);
    }
}

/// Reads a corrupt frame until it is good, or until two reads agree: then the object is corrupt, not the
/// connection.
async fn read_again<E: FetchEvents>(
    fetcher: &Fetcher,
    events: &E,
    target: &Target,
    mut why: String,
) -> Outcome {
    let metrics = &fetcher.resources.metrics;
    let (targets, step) = (std::slice::from_ref(target), target.id.step);
    let mut agree = false;
    for _ in 1..READS_MAX {
        metrics.checksum_failures.inc();
        tracing::warn!(step, slice = target.id.slice, %why, "fetching a wrong frame again");
        let sums = match fill(fetcher, &target.read(), targets, true).await {
            Ok(sums) => sums,
            Err(why) => {
                metrics.refused_frames.inc();
                let head = head_after(events, &why).await;
                let fault = unreadable(events, &head, &why, &target.from.key, step, &[]);
                return Err(Arc::new(fault));
            }
        };
        match fetcher.verify(target, &sums[0]) {
            Ok(loaded) => return Ok(loaded),
            Err(now) => agree = std::mem::replace(&mut why, now) == why,
        }
        if agree {
            break;
        }
    }
    metrics.checksum_failures.inc();
    metrics.refused_frames.inc();
    tracing::error!(step, slice = target.id.slice, %why, "a frame is refused");
    let fault = fault::corrupt(&why, agree, &target.from.key, step);
    Err(Arc::new(fault))
}
