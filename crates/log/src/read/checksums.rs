//! Checksums of slices as the indexes of data objects have them: they say what a rank received at a step
//! without a read of its data. For ledgers that a dead daemon did not store.
//!
//! One ranged read per object: the log says where the index begins and how many frames it has. Only
//! where it can't, since an object's other batches are reclaimed or wait for their turn, the store is
//! asked for the size.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::{Seq, Step};
use batchweave_core::keys;
use batchweave_core::manifest::StepEntry;
use batchweave_core::stream::StreamOrder;
use batchweave_core::tgb::{ENTRY_BYTES, Identity, IndexEntry, TRAILER_BYTES, Trailer};
use batchweave_store::{Backoff, ErrorKind, StoreError, read_range};
use bytes::{Buf, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};

use crate::{Located, Log, LogError};

/// Indexes read side by side.
const READS: usize = 24;
/// Reads of one index that is damaged, or whose answer breaks off, before it counts as such.
const TRIES: u32 = 4;
/// Entries of indexes that are kept: ranks of a node come back one by one and ask for the same.
const KEPT: usize = 1 << 17;

/// CRC32C of payloads by slice, of one step; or why they are not to be had.
pub type StepCrcs = Result<BTreeMap<u32, u32>, String>;

/// The checksums of `slices`, in order.
pub fn slice_crcs(slices: Range<u32>, step: Option<&StepCrcs>) -> Result<Vec<u32>, String> {
    let step = step.ok_or("it was not read")?;
    let crcs = step.as_ref().map_err(Clone::clone)?;
    let found: Option<Vec<u32>> = slices.map(|slice| crcs.get(&slice).copied()).collect();
    found.ok_or_else(|| "its index does not have all slices".into())
}

/// Reads indexes beside a log of its own.
#[derive(Debug)]
pub struct Checksums {
    log: Log,
    /// Whole indexes by object, and the objects as they were read.
    kept: BTreeMap<String, Arc<Index>>,
    order: VecDeque<String>,
}

/// An object and where its index lies.
struct Object {
    key: String,
    identity: Identity,
    /// Where the index begins, and its entries.
    index: Option<(u64, u64)>,
}

/// Of one object.
#[derive(Debug)]
struct Index {
    /// By sequence number and slice.
    crcs: BTreeMap<(Seq, u32), u32>,
    /// Of all slices, not of those alone that were asked for.
    whole: bool,
}

enum Failure {
    /// Another read says the same.
    Gone(String),
    /// The bytes are not what the log implies: perhaps of this read alone.
    Damaged(String),
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(why: StoreError) -> Self {
        if why.kind.is_transient() {
            return Self::Store(why);
        }
        // The answer may be wrong, not the object: another range than was asked for, or the end of it.
        if matches!(why.kind, ErrorKind::Contract | ErrorKind::Range) {
            return Self::Damaged(why.to_string());
        }
        Self::Gone(why.to_string())
    }
}

impl Checksums {
    /// Beside `log`, which nothing else needs.
    pub fn new(log: Log) -> Self {
        Self {
            log,
            kept: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// The checksums of those slices that lie in one of `slices`, for each of `steps`. Fails only for
    /// what may be otherwise later: a store or a log that can't be read.
    pub async fn for_steps(
        &mut self,
        steps: &[Step],
        slices: &[Range<u32>],
    ) -> Result<BTreeMap<Step, StepCrcs>, LogError> {
        self.log.catch_up().await?;
        let mut found: BTreeMap<Step, StepCrcs> = BTreeMap::new();
        let mut entries: Vec<Arc<StepEntry>> = Vec::new();
        let mut objects: BTreeMap<String, Object> = BTreeMap::new();
        for &step in steps {
            match self.entry(step).await? {
                Ok(entry) => entries.push(entry),
                Err(why) => _ = found.insert(step, Err(why)),
            }
        }
        for entry in &entries {
            for key in wanted(entry, slices) {
                if !objects.contains_key(key) {
                    let object = self.object(key, entry).await?;
                    objects.insert(key.to_owned(), object);
                }
            }
        }
        let reads = objects.into_values().map(|object| async {
            let index = match self.kept.get(&object.key) {
                Some(index) => Ok(Arc::clone(index)),
                None => self.index(&object, slices).await?,
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
    }

    /// Keeps the indexes that are whole, and forgets the oldest for them.
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

    async fn entry(&mut self, step: Step) -> Result<Result<Arc<StepEntry>, String>, LogError> {
        Ok(match self.log.locate(step).await? {
            Located::At(entry) => Ok(entry),
            Located::Reclaimed { watermark } => Err(format!(
                "step {step} is below the watermark {watermark}: its data may be gone"
            )),
            Located::NotYet | Located::Ended { .. } => {
                Err(format!("step {step} is not in the log"))
            }
        })
    }

    async fn object(&mut self, key: &str, entry: &StepEntry) -> Result<Object, LogError> {
        let stream = self.log.manifest().stream_id();
        Ok(Object {
            key: key.to_owned(),
            identity: Identity::new(stream, &entry.producer, entry.epoch),
            index: self.extent(key, entry).await?,
        })
    }

    /// Where an object's index begins and how many entries it has: its batches are those whose numbers
    /// its key names, and one entry committed them all.
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
            let mut looks = seq.abs_diff(end).saturating_mul(apart);
            while seq != end {
                let next = if up {
                    step.checked_add(1)
                } else {
                    step.checked_sub(1)
                };
                let Some(next) = next.filter(|_| looks > 0) else {
                    return Ok(None);
                };
                (step, looks) = (next, looks - 1);
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

    /// Reads an index; `Ok(Err)` when it is gone or damaged for good.
    async fn index(
        &self,
        object: &Object,
        slices: &[Range<u32>],
    ) -> Result<Result<Arc<Index>, String>, LogError> {
        let (mut backoff, mut tries, mut fresh) = (Backoff::STORE, 1, false);
        loop {
            match self.index_once(object, slices, fresh).await {
                Ok(index) => return Ok(Ok(Arc::new(index))),
                Err(Failure::Gone(why)) => return Ok(Err(why)),
                Err(Failure::Damaged(why)) if tries == TRIES => {
                    return Ok(Err(format!("{}: {why}, also when read again", object.key)));
                }
                Err(Failure::Store(why)) if tries == TRIES => return Err(why.into()),
                // The connection may be what is wrong.
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
            None => self.asked(key, fresh).await?,
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
            return Err(Failure::Damaged("is another producer's".into()));
        }
        if (trailer.index_offset, u64::from(trailer.frames)) != (from, frames) {
            return Err(Failure::Damaged("its trailer does not fit the log".into()));
        }
        Ok(Index { crcs, whole })
    }

    /// Where the index lies by the object itself.
    async fn asked(&self, key: &str, fresh: bool) -> Result<(u64, u64), Failure> {
        let size = self.log.store.head(key).await?.size;
        let Some(at) = size.checked_sub(TRAILER_BYTES) else {
            return Err(Failure::Gone(format!("{key}: is too short for an object")));
        };
        let store = if fresh {
            &self.log.raw
        } else {
            &self.log.store
        };
        let read = read_range(store.as_ref(), key, at..size, fresh).await?;
        let trailer = Trailer::decode(&read).map_err(damaged)?;
        if trailer.object_bytes() != size {
            return Err(Failure::Damaged("its trailer does not fit its size".into()));
        }
        Ok((trailer.index_offset, u64::from(trailer.frames)))
    }
}

fn damaged(why: impl std::fmt::Display) -> Failure {
    Failure::Damaged(why.to_string())
}

/// Adds the frames of a batch that lie in the object `key`.
fn add((end, frames): &mut (u64, u64), key: &str, entry: &StepEntry) {
    for part in entry.tgb.parts.iter().filter(|part| part.key == key) {
        *end = part.end().max(*end);
        *frames += u64::from(part.slices);
    }
}

/// The objects of a step that hold some of `slices`.
fn wanted<'e>(entry: &'e StepEntry, slices: &'e [Range<u32>]) -> impl Iterator<Item = &'e str> {
    let parts = entry.tgb.parts.iter().filter(|part| {
        let holds = |s: &Range<u32>| part.first_slice < s.end && s.start < part.end_slice();
        slices.iter().any(holds)
    });
    parts.map(|part| part.key.as_str())
}

fn pick(
    entry: &StepEntry,
    slices: &[Range<u32>],
    read: &BTreeMap<String, Result<Arc<Index>, String>>,
) -> StepCrcs {
    let mut crcs = BTreeMap::new();
    for part in &entry.tgb.parts {
        let own = |slice: &u32| slices.iter().any(|range| range.contains(slice));
        for slice in (part.first_slice..part.end_slice()).filter(own) {
            let index = match read.get(&part.key) {
                Some(Ok(index)) => index,
                Some(Err(why)) => return Err(why.clone()),
                None => continue,
            };
            let Some(crc) = index.crcs.get(&(entry.seq, slice)) else {
                let key = &part.key;
                let step = entry.step;
                return Err(format!(
                    "{key}: its index has no slice {slice} of step {step}"
                ));
            };
            crcs.insert(slice, *crc);
        }
    }
    Ok(crcs)
}
