//! Where the slices of steps lie: by the log alone where frames have one size, else by index entries. One
//! read brings the entries of all steps that lie side by side in an object; reads of several objects run
//! side by side.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::Step;
use batchweave_core::manifest::StepEntry;
use batchweave_core::tgb::ranges::{Frame, Located, PartSlices};
use batchweave_core::tgb::{ENTRY_BYTES, Identity, TgbError};
use batchweave_wire::Fault;
use bytes::Bytes;
use futures::future::join_all;
use tokio::sync::Semaphore;

use super::READS_MAX;
use super::fault::{corrupt, head_for, unreadable};
use super::retry::{ReadError, open, patiently, short};
use crate::engine::location::{Location, blocks};
use crate::node::{Hub, State};

/// Entries that are this near to one another are read together, with what lies between.
const GAP_BYTES: u64 = 64 << 10;
/// As much as one read brings.
const READ_BYTES_MAX: u64 = 512 << 10;

/// A step in the log, and its slices whose places are wanted: sorted and apart.
pub(crate) struct Lookup {
    pub(crate) entry: Arc<StepEntry>,
    pub(crate) slices: Vec<Range<u32>>,
}

impl Lookup {
    /// Whether the log tells all places.
    pub(crate) fn is_told(&self) -> bool {
        self.entry.tgb.parts.iter().all(|part| part.index.is_none())
    }
}

/// The bytes of a block's index entries.
type Unread<'a> = (PartSlices<'a>, Range<u64>, Identity);

/// One read of index entries.
struct IndexRead<'a> {
    key: &'a str,
    range: Range<u64>,
    /// What it brings: the bytes of each block's entries.
    blocks: Vec<Unread<'a>>,
}

/// Gives the engine the places that the log tells.
pub(crate) fn put_told(hub: &Arc<Hub>, lookups: &[Lookup]) {
    let (found, _) = told(hub, lookups);
    hub.apply(|state| found.into_iter().for_each(|found| found.put(state)));
}

/// Finds the places of all slices, then gives them to the engine together, so that neighbouring steps can
/// share reads. At most as many reads are in flight as `turns` has permits. `others`: steps around these.
pub(crate) async fn locate(
    hub: &Arc<Hub>,
    lookups: &[Lookup],
    others: &[Lookup],
    turns: &Semaphore,
) {
    let (mut found, unread) = told(hub, lookups);
    let reads = unread
        .into_iter()
        .flat_map(|(key, blocks)| join(key, blocks));
    let outcomes = reads.map(|read| async {
        // Never closed.
        let _turn = turns.acquire().await;
        take(hub, read, others).await
    });
    found.extend(join_all(outcomes).await.into_iter().flatten());
    hub.apply(|state| found.into_iter().for_each(|found| found.put(state)));
}

/// The places that the log tells, and the entries that are to be read, by object.
fn told<'a>(hub: &Hub, lookups: &'a [Lookup]) -> (Vec<Found>, BTreeMap<&'a str, Vec<Unread<'a>>>) {
    let (mut found, mut unread) = (Vec::new(), BTreeMap::<&str, Vec<_>>::new());
    for Lookup { entry, slices } in lookups {
        let identity = Identity::new(hub.stream.stream_id, &entry.producer, entry.epoch);
        for block in blocks(entry, slices) {
            match block.locate() {
                Located::Frames(frames) => {
                    let key: Arc<str> = block.part.key.as_str().into();
                    let places = frames.iter().map(|frame| place(frame, &key, identity));
                    found.push(Found::Places(
                        entry.step,
                        block.slices.start,
                        places.collect(),
                    ));
                }
                Located::Index(range) => {
                    let of_object = unread.entry(block.part.key.as_str()).or_default();
                    of_object.push((block, range, identity));
                }
            }
        }
    }
    (found, unread)
}

/// The outcome for slices that follow one another.
enum Found {
    /// The places of those from a slice on.
    Places(Step, u32, Vec<Location>),
    Failed(Step, Range<u32>, Arc<Fault>),
}

impl Found {
    fn put(self, state: &mut State) {
        match self {
            Self::Places(step, first, places) => state.engine.add_step(step, first, places.into()),
            Self::Failed(step, slices, why) => state.engine.fail_slices(step, slices, &why),
        }
    }
}

fn place(frame: &Frame<'_>, key: &Arc<str>, identity: Identity) -> Location {
    Location {
        key: Arc::clone(key),
        range: frame.range.clone(),
        identity,
        seq: frame.seq,
    }
}

/// Joins the entries of one object that are near one another.
fn join<'a>(key: &'a str, mut blocks: Vec<Unread<'a>>) -> Vec<IndexRead<'a>> {
    blocks.sort_by_key(|(_, range, _)| range.start);
    let mut reads: Vec<IndexRead<'a>> = Vec::new();
    for block in blocks {
        let range = block.1.clone();
        let near = |read: &&mut IndexRead<'_>| {
            range.start <= read.range.end + GAP_BYTES
                && range.end - read.range.start <= READ_BYTES_MAX
        };
        match reads.last_mut().filter(near) {
            Some(read) => {
                read.range.end = read.range.end.max(range.end);
                read.blocks.push(block);
            }
            None => reads.push(IndexRead {
                key,
                range,
                blocks: vec![block],
            }),
        }
    }
    reads
}

/// Reads entries until all are right, or wrong twice in the same way: then the object is, not the way to
/// it. Entries that are right count, whatever is beside them.
async fn take(hub: &Hub, read: IndexRead<'_>, others: &[Lookup]) -> Vec<Found> {
    let mut before: Option<Bytes> = None;
    let mut reads = 0;
    loop {
        let fresh = before.is_some();
        let bytes = match patiently(hub, fresh, |fresh| once(hub, &read, fresh)).await {
            Ok(bytes) => bytes,
            Err(why) => return gone(hub, &read, others, &why).await,
        };
        reads += 1;
        let agree = before.as_ref() == Some(&bytes);
        let wrong = read.first_wrong(&bytes);
        match wrong {
            Some(why) if !agree && reads < READS_MAX => {
                tracing::warn!(key = read.key, %why, "fetching a wrong index again");
                hub.metrics.checksum_failures.inc();
                before = Some(bytes);
            }
            wrong => {
                if let Some(why) = wrong {
                    tracing::error!(key = read.key, %why, "index entries are refused");
                    hub.metrics.checksum_failures.inc();
                }
                return read.found(&bytes, agree);
            }
        }
    }
}

/// None of the slices can be had: the object can't be read.
async fn gone(hub: &Hub, read: &IndexRead<'_>, others: &[Lookup], why: &ReadError) -> Vec<Found> {
    let inside = |lookup: &&Lookup| {
        let mut parts = lookup.entry.tgb.parts.iter();
        parts.any(|part| part.key == read.key)
    };
    let others: Vec<Step> = others.iter().filter(inside).map(|l| l.entry.step).collect();
    let head = head_for(hub, why).await;
    let failed = read.blocks.iter().map(|(block, ..)| {
        let fault = unreadable(hub, &head, why, (read.key, block.step), &others);
        Found::Failed(block.step, block.slices.clone(), Arc::new(fault))
    });
    failed.collect()
}

async fn once(hub: &Hub, read: &IndexRead<'_>, fresh: bool) -> Result<Bytes, ReadError> {
    let mut body = open(hub, read.key, &read.range, fresh).await?;
    let mut bytes = vec![0; (read.range.end - read.range.start) as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        let count = body.read(&mut bytes[filled..]).await?;
        if count == 0 {
            let at = read.range.start + filled as u64;
            return Err(short(hub, read.key, at, read.range.end).into());
        }
        hub.metrics.bytes_fetched.inc_by(count as u64);
        filled += count;
    }
    Ok(bytes.into())
}

impl IndexRead<'_> {
    /// Each slice with its frame, or what is wrong with its entry.
    fn entries<'b>(
        &'b self,
        bytes: &'b [u8],
    ) -> impl Iterator<
        Item = (
            &'b PartSlices<'b>,
            Identity,
            u32,
            Result<Frame<'b>, TgbError>,
        ),
    > {
        self.blocks
            .iter()
            .flat_map(move |(block, range, identity)| {
                let begin = (range.start - self.range.start) as usize;
                block.slices.clone().enumerate().map(move |(n, slice)| {
                    let at = begin + n * ENTRY_BYTES as usize;
                    let entry = bytes.get(at..at + ENTRY_BYTES as usize);
                    (
                        block,
                        *identity,
                        slice,
                        block.frame_of(slice, entry.unwrap_or_default()),
                    )
                })
            })
    }

    fn first_wrong(&self, bytes: &[u8]) -> Option<TgbError> {
        self.entries(bytes).find_map(|(.., frame)| frame.err())
    }

    fn found(&self, bytes: &[u8], agree: bool) -> Vec<Found> {
        let key: Arc<str> = self.key.into();
        let mut found = Vec::new();
        for (block, identity, slice, frame) in self.entries(bytes) {
            match frame {
                Ok(frame) => {
                    let place = place(&frame, &key, identity);
                    match found.last_mut() {
                        Some(Found::Places(step, first, run))
                            if *step == block.step && *first + run.len() as u32 == slice =>
                        {
                            run.push(place);
                        }
                        _ => found.push(Found::Places(block.step, slice, vec![place])),
                    }
                }
                Err(why) => {
                    let fault = corrupt(&why.to_string(), agree, self.key, block.step);
                    found.push(Found::Failed(block.step, slice..slice + 1, Arc::new(fault)));
                }
            }
        }
        found
    }
}
