//! What a producer wants in the log, in order, and the entries that say so.

use std::collections::VecDeque;
use std::time::Duration;

use batchweave_core::cursor::Cursor;
use batchweave_core::flow_control::{Gate, HeldBack};
use batchweave_core::guards;
use batchweave_core::ids::{Epoch, Nonce, ProducerName, Seq, Version};
use batchweave_core::limits::{ENTRY_BYTES_MAX, ENTRY_TGBS_MAX};
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::entry::{BatchEntry, Entry, Finished, Opened};
use batchweave_core::manifest::state::ProducerState;
use batchweave_core::tgb::TgbRecord;

/// What becomes visible together: all TGBs of one object (or of the objects of one TGB), durable
/// in the store, and the cursor after them.
#[derive(Debug, Clone)]
pub struct CommitItem {
    /// The TGBs in order of sequence.
    pub tgbs: Vec<TgbRecord>,
    /// The cursor after the last of them.
    pub cursor: Cursor,
}

#[derive(Debug)]
enum Want {
    Open {
        instance: String,
    },
    Item {
        item: CommitItem,
        first: Seq,
        bytes: usize,
    },
    Finish,
}

#[derive(Debug)]
struct Waiting {
    want: Want,
    /// Since when it may be committed, as far as this producer is concerned.
    ready: Duration,
    /// It is above the ceiling.
    held: bool,
}

/// The queue of one instance of a producer.
#[derive(Debug)]
pub(crate) struct Wants {
    name: ProducerName,
    nonce: Nonce,
    /// The head of the log when this instance began.
    pub(crate) began: Version,
    queue: VecDeque<Waiting>,
    /// How many of them, from the front, are below the ceiling.
    allowed: usize,
    /// The first sequence number of the next item.
    next_seq: Seq,
    tgbs_per_entry: usize,
}

/// Entries of one producer in one record; more wait for the next.
const ENTRIES_MAX: usize = 8;

impl Wants {
    pub(crate) fn new(
        name: ProducerName,
        nonce: Nonce,
        next_seq: Seq,
        tgbs_per_entry: usize,
    ) -> Self {
        Self {
            name,
            nonce,
            began: 0,
            queue: VecDeque::new(),
            allowed: 0,
            next_seq,
            tgbs_per_entry: tgbs_per_entry.clamp(1, ENTRY_TGBS_MAX),
        }
    }

    /// The first sequence number, found out late; for an empty queue.
    pub(crate) fn start_at(&mut self, next_seq: Seq) {
        self.next_seq = next_seq;
    }

    pub(crate) fn open(&mut self, instance: &str, at: Duration) {
        let instance = instance.to_owned();
        self.push(Want::Open { instance }, at);
    }

    pub(crate) fn item(&mut self, item: CommitItem, at: Duration) {
        // Unmeasurable counts as too large: the fold's own rule refuses it then, aloud.
        let bytes = serde_json::to_vec(&item.tgbs).map_or(ENTRY_BYTES_MAX, |b| b.len());
        let first = self.next_seq;
        self.next_seq += item.tgbs.len() as u64;
        self.push(Want::Item { item, first, bytes }, at);
    }

    pub(crate) fn finish(&mut self, at: Duration) {
        self.push(Want::Finish, at);
    }

    fn push(&mut self, want: Want, ready: Duration) {
        let held = false;
        self.queue.push_back(Waiting { want, ready, held });
    }

    /// Asks `gate` what may be committed by now; returns why the first that may not is held. Without
    /// a gate everything may.
    pub(crate) fn admit(
        &mut self,
        gate: Option<&mut Gate>,
        epoch: Epoch,
        now: Duration,
    ) -> Option<HeldBack> {
        let held = gate.and_then(|gate| self.ask(gate, epoch));
        if held.is_none() {
            self.allowed = self.queue.len();
        }
        for (at, waiting) in self.queue.iter_mut().enumerate() {
            let was_held = std::mem::replace(&mut waiting.held, at >= self.allowed);
            if was_held && !waiting.held {
                // The time for which it was held is no latency of a commit.
                waiting.ready = now;
            }
        }
        held
    }

    fn ask(&mut self, gate: &mut Gate, epoch: Epoch) -> Option<HeldBack> {
        for (at, waiting) in self.queue.iter().enumerate() {
            let asked = match &waiting.want {
                Want::Open { .. } => Ok(()),
                Want::Item { item, .. } => gate.item(&self.name, &item.tgbs),
                Want::Finish => gate.finish(&self.finished(epoch)),
            };
            if let Err(held) = asked {
                self.allowed = at;
                return Some(held);
            }
        }
        None
    }

    /// How many may be committed now.
    pub(crate) fn allowed(&self) -> usize {
        self.allowed
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.queue.front().map(|waiting| waiting.ready)
    }

    /// Whether a seal stops what is wanted first: a finish is allowed under a seal.
    pub(crate) fn is_stopped_by_seal(&self) -> bool {
        let first = self.queue.front().map(|waiting| &waiting.want);
        !matches!(first, None | Some(Want::Finish))
    }

    /// Drops what is committed by `state`; returns how many wants that were. Only this instance
    /// writes under its nonce, so what moved there is what it wanted, whoever has put the record.
    pub(crate) fn settle(&mut self, state: Option<&ProducerState>) -> usize {
        let before = self.queue.len();
        let Some(state) = state.filter(|p| p.nonce == self.nonce) else {
            return 0;
        };
        while let Some(waiting) = self.queue.front() {
            let done = match &waiting.want {
                Want::Open { .. } => true,
                Want::Item { item, first, .. } => first + item.tgbs.len() as u64 <= state.next_seq,
                Want::Finish => state.finished,
            };
            if !done {
                break;
            }
            self.queue.pop_front();
            self.allowed = self.allowed.saturating_sub(1);
        }
        before - self.queue.len()
    }

    /// Entries for what is wanted after the first `skip` wants and allowed, each with the number of
    /// wants that it covers. `epoch` is that of this instance, or the one it wants to open.
    pub(crate) fn entries(
        &self,
        manifest: &Manifest,
        epoch: Epoch,
        skip: usize,
    ) -> Vec<(Entry, usize)> {
        let mut entries = Vec::new();
        let mut at = skip;
        while entries.len() < ENTRIES_MAX {
            let Some(waiting) = self.queue.get(at).filter(|_| at < self.allowed) else {
                break;
            };
            let (entry, wants) = match &waiting.want {
                Want::Open { instance } => (self.opened(instance, epoch), 1),
                Want::Item { .. } => self.batch(manifest, epoch, at),
                Want::Finish => (self.finished(epoch), 1),
            };
            entries.push((entry, wants));
            at += wants;
        }
        entries
    }

    fn opened(&self, instance: &str, epoch: Epoch) -> Entry {
        Entry::Opened(Opened {
            producer: self.name.clone(),
            instance: instance.to_owned(),
            nonce: self.nonce,
            epoch,
            began: self.began,
        })
    }

    fn finished(&self, epoch: Epoch) -> Entry {
        Entry::Finished(Finished {
            producer: self.name.clone(),
            epoch,
            final_seq: self.next_seq,
        })
    }

    /// The longest run of items from `at` on that fits one entry; at least one, for an item that is
    /// too large must be refused aloud.
    fn batch(&self, manifest: &Manifest, epoch: Epoch, at: usize) -> (Entry, usize) {
        let (mut tgbs, mut bytes, mut count) = (Vec::new(), 0, 0);
        let mut cursor = Cursor::default();
        let mut first_seq = 0;
        for waiting in self.queue.range(at..self.allowed) {
            let Want::Item {
                item,
                first,
                bytes: size,
            } = &waiting.want
            else {
                break;
            };
            if count == 0 {
                first_seq = *first;
            }
            bytes += size;
            // A cursor and the entry's own fields take the rest.
            let full = tgbs.len() + item.tgbs.len() > self.tgbs_per_entry
                || bytes > ENTRY_BYTES_MAX / 2
                || manifest.mixture_at(&self.name, *first)
                    != manifest.mixture_at(&self.name, first_seq);
            if count > 0 && full {
                break;
            }
            tgbs.extend(item.tgbs.iter().cloned());
            cursor = item.cursor.clone();
            count += 1;
        }
        if guards::splits_objects() && tgbs.len() > 1 {
            tgbs.pop();
        }
        let last_seq = (first_seq + tgbs.len() as u64).saturating_sub(1);
        let entry = BatchEntry {
            producer: self.name.clone(),
            epoch,
            first_seq,
            last_seq,
            cursor_before: self.cursor_before(manifest, at).hash(),
            cursor,
            mixture: manifest.mixture_at(&self.name, first_seq),
            first_step: None,
            tgbs,
        };
        (Entry::Batch(entry), count.max(1))
    }

    fn cursor_before(&self, manifest: &Manifest, at: usize) -> Cursor {
        let before = at.checked_sub(1).and_then(|before| self.queue.get(before));
        if let Some(Want::Item { item, .. }) = before.map(|waiting| &waiting.want) {
            return item.cursor.clone();
        }
        let state = manifest.producer(&self.name);
        state.map(|p| p.cursor.clone()).unwrap_or_default()
    }
}
