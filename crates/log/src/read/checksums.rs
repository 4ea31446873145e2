//! Reads checksums of slices from the indexes of data objects: they show what a rank received at a step, without
//! a read of its data. For ledgers that a failed daemon did not store.
//!
//! One ranged read per object: the log shows where the index begins and how many frames it has. Where it does
//! not, since an object's other batches are reclaimed or wait for their turn, the object's size is read first.

mod entries;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::{Seq, Step};
use batchweave_core::keys;
use batchweave_core::manifest::{Manifest, StepEntry};
use batchweave_core::stream::StreamOrder;
use batchweave_core::tgb::{ENTRY_BYTES, Identity, IndexEntry, TRAILER_BYTES, Trailer};
use batchweave_store::{Backoff, ErrorKind, StoreError, read_range};
use bytes::{Buf, BytesMut};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};

use self::entries::{add, needed, pick};
use crate::error::LogError;
use crate::log::Log;
use crate::read::locate::Located;

/// Concurrent reads of indexes.
const READS: usize = 24;
/// Reads of an index before it counts as damaged.
const TRIES: u32 = 4;
/// Entries of indexes that are kept: the ranks of a node return one by one and need the same ones.
const KEPT: usize = 1 << 17;

/// The CRC32Cs of a step's payloads by slice, or why they cannot be read.
pub type StepCrcs = Result<BTreeMap<u32, u32>, String>;

/// Returns the checksums of `slices`, in order.
pub fn slice_crcs(slices: Range<u32>, step: Option<&StepCrcs>) -> Result<Vec<u32>, String> {
    let crcs = step
        .ok_or("it was not read")?
        .as_ref()
        .map_err(Clone::clone)?;
    let found: Option<Vec<u32>> = slices.map(|slice| crcs.get(&slice).copied()).collect();
    found.ok_or_else(|| "its index does not have all slices".into())
}

/// A reader of checksums, with a log of its own.
#[derive(Debug)]
pub struct Checksums {
    log: Log,
    /// Complete indexes by object key.
    kept: BTreeMap<String, Arc<Index>>,
    /// The keys of the kept indexes, oldest first.
    order: VecDeque<String>,
}

struct Object {
    key: String,
    identity: Identity,
    /// The offset of its index and the number of entries, if the log shows them.
    index: Option<(u64, u64)>,
    /// The sequence numbers and slices that are needed of it.
    wanted: Vec<(Seq, Range<u32>)>,
}

/// The index of one object.
#[derive(Debug)]
struct Index {
    /// Checksums by sequence number and slice.
    crcs: BTreeMap<(Seq, u32), u32>,
    /// Whether all slices are included, not only the requested ones.
    whole: bool,
}

/// Why an entry or an index cannot be read.
enum Unreadable {
    /// It is gone or damaged.
    Permanent(String),
    /// The store or the log failed: a retry may succeed.
    Failed(LogError),
}

impl From<LogError> for Unreadable {
    fn from(error: LogError) -> Self {
        Self::Failed(error)
    }
}

/// A failed read of an index.
enum Failure {
    /// The object is missing, or cannot be read for good.
    Gone(String),
    /// The bytes contradict the log, perhaps in this read only.
    Damaged(String),
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(why: StoreError) -> Self {
        if why.kind.is_transient() {
            return Self::Store(why);
        }
        // The answer may be wrong, not the object: another range than requested, or a part of it.
        if matches!(why.kind, ErrorKind::Contract | ErrorKind::Range) {
            return Self::Damaged(why.to_string());
        }
        Self::Gone(why.to_string())
    }
}

impl Checksums {
    /// Returns a reader that uses `log`.
    pub fn new(log: Log) -> Self {
        Self {
            log,
            kept: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Returns the state of the log at its head.
    pub fn manifest(&mut self) -> BoxFuture<'_, Result<&Manifest, LogError>> {
        Box::pin(async move {
            self.log.catch_up().await?;
            Ok(self.log.manifest())
        })
    }

    /// Returns the checksums of the slices in `slices`, for each of `steps`. Fails only when the store or the log
    /// cannot be read.
    pub fn for_steps<'a>(
        &'a mut self,
        steps: &'a [Step],
        slices: &'a [Range<u32>],
    ) -> BoxFuture<'a, Result<BTreeMap<Step, StepCrcs>, LogError>> {
        Box::pin(async move {
            self.log.catch_up().await?;
            let mut found: BTreeMap<Step, StepCrcs> = BTreeMap::new();
            let mut entries: Vec<Arc<StepEntry>> = Vec::new();
            let mut objects: BTreeMap<String, Object> = BTreeMap::new();
            for &step in steps {
                match self.entry(step).await {
                    Ok(entry) => entries.push(entry),
                    Err(Unreadable::Permanent(why)) => _ = found.insert(step, Err(why)),
                    Err(Unreadable::Failed(error)) => return Err(error),
                }
            }
            for entry in &entries {
                for (key, wanted) in needed(entry, slices) {
                    if !objects.contains_key(key) {
                        let object = self.object(key, entry).await?;
                        objects.insert(key.to_owned(), object);
                    }
                    if let Some(object) = objects.get_mut(key) {
                        object.wanted.push((entry.seq, wanted));
                    }
                }
            }
            let reads = objects.into_values().map(|object| async {
                let index = match self.kept.get(&object.key) {
                    Some(index) => Ok(Arc::clone(index)),
                    None => match self.index(&object, slices).await {
                        Ok(index) => Ok(index),
                        Err(Unreadable::Permanent(why)) => Err(why),
                        Err(Unreadable::Failed(error)) => return Err(error),
                    },
                };
                Ok::<_, LogError>((object.key, index))
            });
            let reads = stream::iter(reads).buffer_unordered(READS);
            let read: BTreeMap<String, Result<Arc<Index>, String>> = reads.try_collect().await?;
            self.keep(&read);
            for entry in entries {
                let crcs = pick(&entry, slices, &read);
                found.insert(entry.step, crcs);
            }
            Ok(found)
        })
    }

    /// Keeps the complete indexes, and forgets the oldest in their place.
    fn keep(&mut self, read: &BTreeMap<String, Result<Arc<Index>, String>>) {
        for (key, index) in read {
            let Ok(index) = index else { continue };
            if index.whole && !self.kept.contains_key(key) {
                self.kept.insert(key.clone(), Arc::clone(index));
                self.order.push_back(key.clone());
            }
        }
        let mut all: usize = self.kept.values().map(|index| index.crcs.len()).sum();
        while all > KEPT {
            let Some(index) = self
                .order
                .pop_front()
                .and_then(|key| self.kept.remove(&key))
            else {
                break;
            };
            all -= index.crcs.len();
        }
    }

    async fn entry(&mut self, step: Step) -> Result<Arc<StepEntry>, Unreadable> {
        let why = match self.log.locate(step).await? {
            Located::At(entry) => return Ok(entry),
            Located::Reclaimed { watermark } => {
                format!("step {step} is below the watermark {watermark}: its data may be gone")
            }
            Located::NotYet | Located::Ended { .. } => format!("step {step} is not in the log"),
        };
        Err(Unreadable::Permanent(why))
    }

    async fn object(&mut self, key: &str, entry: &StepEntry) -> Result<Object, LogError> {
        let stream = self.log.manifest().stream_id();
        Ok(Object {
            key: key.to_owned(),
            identity: Identity::new(stream, &entry.producer, entry.epoch),
            index: self.extent(key, entry).await?,
            wanted: Vec::new(),
        })
    }

    /// Returns the offset of an object's index and the number of entries, by the log: its key names its TGBs, and
    /// one entry committed them all.
    async fn extent(
        &mut self,
        key: &str,
        entry: &StepEntry,
    ) -> Result<Option<(u64, u64)>, LogError> {
        let name = key.rsplit('/').next().unwrap_or_default();
        let Some((first, last)) = keys::data_seqs(name) else {
            return Ok(None);
        };
        let mut extent = (0, 0);
        add(&mut extent, key, entry);
        let config = self.log.manifest().stream();
        let apart = match config.order {
            StreamOrder::Arrival => 1,
            StreamOrder::Lanes => config.producers.len().max(1) as u64,
        };
        for up in [false, true] {
            let (mut step, mut seq) = (entry.step, entry.seq);
            let end = if up { last } else { first };
            let mut left = seq.abs_diff(end).saturating_mul(apart);
            while seq != end {
                let next = neighbour(step, up);
                let Some(next) = next.filter(|_| left > 0) else {
                    return Ok(None);
                };
                (step, left) = (next, left - 1);
                let Located::At(other) = self.log.locate(step).await? else {
                    return Ok(None);
                };
                if other.producer == entry.producer {
                    seq = other.seq;
                    add(&mut extent, key, &other);
                }
            }
        }
        Ok(Some(extent))
    }

    /// Reads an index, with retries.
    async fn index(
        &self,
        object: &Object,
        slices: &[Range<u32>],
    ) -> Result<Arc<Index>, Unreadable> {
        let (mut backoff, mut tries, mut fresh) = (Backoff::STORE, 1, false);
        loop {
            match self.index_once(object, slices, fresh).await {
                Ok(index) => return Ok(Arc::new(index)),
                Err(Failure::Gone(why)) => return Err(Unreadable::Permanent(why)),
                Err(Failure::Damaged(why)) if tries == TRIES => {
                    let why = format!("{}: {why}, also when read again", object.key);
                    return Err(Unreadable::Permanent(why));
                }
                Err(Failure::Store(why)) if tries == TRIES => {
                    return Err(Unreadable::Failed(why.into()));
                }
                // The connection may be at fault.
                Err(Failure::Damaged(_)) => fresh = true,
                Err(_) => {}
            }
            tries += 1;
            self.log.clock.sleep(backoff.pause()).await;
        }
    }

    async fn index_once(
        &self,
        object: &Object,
        slices: &[Range<u32>],
        fresh: bool,
    ) -> Result<Index, Failure> {
        let (key, store) = (&object.key, self.log.store.as_ref());
        let (from, frames) = match object.index {
            Some(known) => known,
            None => self.stored_extent(key, fresh).await?,
        };
        let end = from + frames * ENTRY_BYTES + TRAILER_BYTES;
        let mut chunks = if fresh {
            let read = read_range(self.log.raw.as_ref(), key, from..end, true).await?;
            stream::iter([Ok(read)]).boxed()
        } else {
            store.get_range(key, from..end).await?
        };
        let whole = frames <= KEPT as u64 / 8;
        let (mut crcs, mut rest, mut left) = (BTreeMap::new(), BytesMut::new(), frames);
        while let Some(chunk) = chunks.try_next().await? {
            rest.extend_from_slice(&chunk);
            while left > 0 && rest.len() >= ENTRY_BYTES as usize {
                let entry = IndexEntry::decode(&rest).map_err(damaged)?;
                rest.advance(ENTRY_BYTES as usize);
                left -= 1;
                if whole || slices.iter().any(|range| range.contains(&entry.slice)) {
                    crcs.insert((entry.seq, entry.slice), entry.payload_crc);
                }
            }
        }
        let trailer = Trailer::decode(&rest).map_err(damaged)?;
        if trailer.identity != object.identity {
            return Err(Failure::Damaged("it belongs to another producer".into()));
        }
        if (trailer.index_offset, u64::from(trailer.frames)) != (from, frames) {
            return Err(Failure::Damaged(
                "its trailer does not match the log".into(),
            ));
        }
        // Another object of this producer may have as many frames at the same place.
        let absent = |seq: &Seq, slice: &u32| !crcs.contains_key(&(*seq, *slice));
        for (seq, wanted) in &object.wanted {
            if let Some(slice) = wanted.clone().find(|slice| absent(seq, slice)) {
                let why = format!("its index has no slice {slice} of batch {seq}");
                return Err(Failure::Damaged(why));
            }
        }
        Ok(Index { crcs, whole })
    }

    /// Returns the offset of the index and the number of entries, by the object itself.
    async fn stored_extent(&self, key: &str, fresh: bool) -> Result<(u64, u64), Failure> {
        let size = self.log.store.head(key).await?.size;
        let Some(at) = size.checked_sub(TRAILER_BYTES) else {
            return Err(Failure::Gone(format!("{key}: too short for a data object")));
        };
        let store = if fresh {
            &self.log.raw
        } else {
            &self.log.store
        };
        let read = read_range(store.as_ref(), key, at..size, fresh).await?;
        let trailer = Trailer::decode(&read).map_err(damaged)?;
        if trailer.object_bytes() != size {
            return Err(Failure::Damaged(
                "its trailer does not match its size".into(),
            ));
        }
        Ok((trailer.index_offset, u64::from(trailer.frames)))
    }
}

fn neighbour(step: Step, up: bool) -> Option<Step> {
    if up {
        step.checked_add(1)
    } else {
        step.checked_sub(1)
    }
}

fn damaged(why: impl std::fmt::Display) -> Failure {
    Failure::Damaged(why.to_string())
}
