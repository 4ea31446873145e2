//! Finding the locations of slices: from the log alone where frames have one size, else from index entries.
//! One read covers the entries of all neighbouring steps in an object; reads of several objects run
//! concurrently.

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

use super::fault::{corrupt, head_after, unreadable};
use super::retry::{ReadError, open, short_body, with_retries};
use super::{FetchEvents, Fetcher, READS_MAX};
use crate::engine::location::{Location, blocks};

/// Entries at most this far apart are read together, with the bytes between.
const GAP_BYTES: u64 = 64 << 10;
/// Most bytes of one read of entries.
const READ_BYTES_MAX: u64 = 512 << 10;

/// A step of the log, and those of its slices that are to be located: sorted, without overlap.
pub(crate) struct Lookup {
    pub(crate) entry: Arc<StepEntry>,
    pub(crate) slices: Vec<Range<u32>>,
}

impl Lookup {
    /// Whether the log alone locates all slices.
    pub(crate) fn needs_no_index(&self) -> bool {
        self.entry.tgb.parts.iter().all(|part| part.index.is_none())
    }
}

/// A block of slices, and the byte range of its index entries.
type Unread<'a> = (PartSlices<'a>, Range<u64>, Identity);

/// One read of the index entries of some blocks.
struct IndexRead<'a> {
    key: &'a str,
    range: Range<u64>,
    blocks: Vec<Unread<'a>>,
}

/// Locates slices by the log alone.
pub(crate) fn locate_from_log(fetcher: &Fetcher, lookups: &[Lookup]) -> Vec<LookupOutcome> {
    locate_or_collect(fetcher, lookups).0
}

/// Locates all slices of `lookups`. They are returned together, so that neighbouring steps can share reads of
/// frames. At most as many index reads are in flight as `turns` has permits. `others`: the steps around these.
pub(crate) async fn locate<E: FetchEvents>(
    fetcher: &Fetcher,
    events: &E,
    lookups: &[Lookup],
    others: &[Lookup],
    turns: &Semaphore,
) -> Vec<LookupOutcome> {
    let (mut found, unread) = locate_or_collect(fetcher, lookups);
    let reads = unread
        .into_iter()
        .flat_map(|(key, blocks)| join(key, blocks));
    let outcomes = reads.map(|read| async {
        // An error would mean that the semaphore is closed, which never happens.
        let _turn = turns.acquire().await;
        read_entries(fetcher, events, read, others).await
    });
    found.extend(join_all(outcomes).await.into_iter().flatten());
    found
}

/// Locates what the log locates, and collects the index entries to read by object.
fn locate_or_collect<'a>(
    fetcher: &Fetcher,
    lookups: &'a [Lookup],
) -> (Vec<LookupOutcome>, BTreeMap<&'a str, Vec<Unread<'a>>>) {
    let stream = fetcher.resources.stream.stream_id;
    let (mut found, mut unread) = (Vec::new(), BTreeMap::<&str, Vec<_>>::new());
    for Lookup { entry, slices } in lookups {
        let identity = Identity::new(stream, &entry.producer, entry.epoch);
        for block in blocks(entry, slices) {
            match block.locate() {
                Located::Frames(frames) => {
                    let key: Arc<str> = block.part.key.as_str().into();
                    let places = frames.iter().map(|frame| place(frame, &key, identity));
                    found.push(LookupOutcome::Located(
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

/// The outcome for consecutive slices of a step.
pub(crate) enum LookupOutcome {
    /// The locations of the slices from the given one on.
    Located(Step, u32, Vec<Location>),
    Failed(Step, Range<u32>, Arc<Fault>),
}

fn place(frame: &Frame<'_>, key: &Arc<str>, identity: Identity) -> Location {
    Location {
        key: Arc::clone(key),
        range: frame.range.clone(),
        identity,
        seq: frame.seq,
    }
}

/// Joins neighbouring entries of one object into reads.
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

/// Reads entries until all are good, or until two reads agree: then the object is corrupt, not the
/// connection. Good entries are used even if entries beside them are corrupt.
async fn read_entries<E: FetchEvents>(
    fetcher: &Fetcher,
    events: &E,
    read: IndexRead<'_>,
    others: &[Lookup],
) -> Vec<LookupOutcome> {
    let metrics = &fetcher.resources.metrics;
    let mut before: Option<Bytes> = None;
    let mut reads = 0;
    loop {
        let fresh = before.is_some();
        let bytes = match with_retries(fetcher, fresh, |fresh| once(fetcher, &read, fresh)).await {
            Ok(bytes) => bytes,
            Err(why) => return all_failed(events, &read, others, &why).await,
        };
        reads += 1;
        let agree = before.as_ref() == Some(&bytes);
        let wrong = read.first_error(&bytes);
        match wrong {
            Some(why) if !agree && reads < READS_MAX => {
                tracing::warn!(key = read.key, %why, "fetching a wrong index again");
                metrics.checksum_failures.inc();
                before = Some(bytes);
            }
            wrong => {
                if let Some(why) = wrong {
                    tracing::error!(key = read.key, %why, "index entries are refused");
                    metrics.checksum_failures.inc();
                }
                return read.found(&bytes, agree);
            }
        }
    }
}

/// Fails all slices of a read, since the object can't be read.
async fn all_failed<E: FetchEvents>(
    events: &E,
    read: &IndexRead<'_>,
    others: &[Lookup],
    why: &ReadError,
) -> Vec<LookupOutcome> {
    let inside = |lookup: &&Lookup| {
        let mut parts = lookup.entry.tgb.parts.iter();
        parts.any(|part| part.key == read.key)
    };
    let others: Vec<Step> = others.iter().filter(inside).map(|l| l.entry.step).collect();
    let head = head_after(events, why).await;
    let failed = read.blocks.iter().map(|(block, ..)| {
        let fault = unreadable(events, &head, why, read.key, block.step, &others);
        LookupOutcome::Failed(block.step, block.slices.clone(), Arc::new(fault))
    });
    failed.collect()
}

async fn once(fetcher: &Fetcher, read: &IndexRead<'_>, fresh: bool) -> Result<Bytes, ReadError> {
    let mut body = open(fetcher, read.key, &read.range, fresh).await?;
    let mut bytes = vec![0; (read.range.end - read.range.start) as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        let count = body.read(&mut bytes[filled..]).await?;
        if count == 0 {
            let at = read.range.start + filled as u64;
            return Err(short_body(fetcher, read.key, at, read.range.end).into());
        }
        fetcher.resources.metrics.bytes_fetched.inc_by(count as u64);
        filled += count;
    }
    Ok(bytes.into())
}

impl IndexRead<'_> {
    /// Yields each slice with its frame, or the error of its entry.
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

    fn first_error(&self, bytes: &[u8]) -> Option<TgbError> {
        self.entries(bytes).find_map(|(.., frame)| frame.err())
    }

    fn found(&self, bytes: &[u8], agree: bool) -> Vec<LookupOutcome> {
        let key: Arc<str> = self.key.into();
        let mut found = Vec::new();
        for (block, identity, slice, frame) in self.entries(bytes) {
            match frame {
                Ok(frame) => {
                    let place = place(&frame, &key, identity);
                    match found.last_mut() {
                        Some(LookupOutcome::Located(step, first, run))
                            if *step == block.step && *first + run.len() as u32 == slice =>
                        {
                            run.push(place);
                        }
                        _ => found.push(LookupOutcome::Located(block.step, slice, vec![place])),
                    }
                }
                Err(why) => {
                    let fault = corrupt(&why.to_string(), agree, self.key, block.step);
                    found.push(LookupOutcome::Failed(
                        block.step,
                        slice..slice + 1,
                        Arc::new(fault),
                    ));
                }
            }
        }
        found
    }
}
