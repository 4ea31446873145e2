//! The commits of a producer that wait, in order, and the entries built from them.

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

/// A unit of commit, visible as a whole or not at all: the TGBs of one object, or the one TGB of several
/// objects, stored durably, and the cursor that follows them.
#[derive(Debug, Clone)]
pub struct CommitItem {
    /// The TGBs, by sequence number.
    pub tgbs: Vec<TgbRecord>,
    /// The cursor after the last of them.
    pub cursor: Cursor,
    /// The mixture by which they were made; `None` for a producer that makes the same ones by any.
    pub mixture: Option<u64>,
    /// The stage by which they were made.
    pub stage: u64,
}

#[derive(Debug)]
enum Commit {
    Open {
        instance: String,
        /// The head of the log when this instance began.
        began: Version,
    },
    Item {
        item: CommitItem,
        first: Seq,
        bytes: usize,
    },
    Finish,
}

#[derive(Debug)]
struct Pending {
    commit: Commit,
    /// Time at which it became ready, on the log's clock.
    ready: Duration,
    /// Held back: above the ceiling.
    held: bool,
}

/// The queue of one instance of a producer.
#[derive(Debug)]
pub(crate) struct PendingCommits {
    name: ProducerName,
    nonce: Nonce,
    queue: VecDeque<Pending>,
    /// The number of commits, from the front, below the ceiling.
    admitted: usize,
    /// The first sequence number of the next item.
    next_seq: Seq,
    tgbs_per_entry: usize,
}

/// Entries of one producer per record; more wait for the next record.
const ENTRIES_MAX: usize = 8;

impl PendingCommits {
    pub(crate) fn new(
        name: ProducerName,
        nonce: Nonce,
        next_seq: Seq,
        tgbs_per_entry: usize,
    ) -> Self {
        Self {
            name,
            nonce,
            queue: VecDeque::new(),
            admitted: 0,
            next_seq,
            tgbs_per_entry: tgbs_per_entry.clamp(1, ENTRY_TGBS_MAX),
        }
    }

    /// Sets the sequence number of the next item. The queue must be empty.
    pub(crate) fn start_at(&mut self, next_seq: Seq) {
        self.next_seq = next_seq;
    }

    pub(crate) fn open(&mut self, instance: &str, began: Version, at: Duration) {
        let instance = instance.to_owned();
        self.push(Commit::Open { instance, began }, at);
    }

    pub(crate) fn item(&mut self, item: CommitItem, at: Duration) {
        // An item that cannot be encoded counts as too large: the rules then refuse it with an error.
        let bytes = serde_json::to_vec(&item.tgbs).map_or(ENTRY_BYTES_MAX, |b| b.len());
        let first = self.next_seq;
        self.next_seq += item.tgbs.len() as u64;
        self.push(Commit::Item { item, first, bytes }, at);
    }

    pub(crate) fn finish(&mut self, at: Duration) {
        self.push(Commit::Finish, at);
    }

    fn push(&mut self, commit: Commit, ready: Duration) {
        self.queue.push_back(Pending {
            commit,
            ready,
            held: false,
        });
    }

    /// Admits the commits that `gate` lets pass, all of them without a gate; returns why the first other
    /// one is held back.
    pub(crate) fn admit(
        &mut self,
        gate: Option<&mut Gate>,
        epoch: Epoch,
        now: Duration,
    ) -> Option<HeldBack> {
        let held = gate.and_then(|gate| self.first_held(gate, epoch));
        if held.is_none() {
            self.admitted = self.queue.len();
        }
        for (at, pending) in self.queue.iter_mut().enumerate() {
            let was_held = std::mem::replace(&mut pending.held, at >= self.admitted);
            if was_held && !pending.held {
                // The time held back does not count as commit latency.
                pending.ready = now;
            }
        }
        held
    }

    fn first_held(&mut self, gate: &mut Gate, epoch: Epoch) -> Option<HeldBack> {
        for (at, pending) in self.queue.iter().enumerate() {
            let admitted = match &pending.commit {
                Commit::Open { .. } => Ok(()),
                Commit::Item { item, .. } => gate.item(&self.name, &item.tgbs),
                Commit::Finish => gate.finish(&self.finished(epoch)),
            };
            if let Err(held) = admitted {
                self.admitted = at;
                return Some(held);
            }
        }
        None
    }

    /// The number of commits, from the front, below the ceiling.
    pub(crate) fn admitted(&self) -> usize {
        self.admitted
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.queue.front().map(|pending| pending.ready)
    }

    /// Whether the first commit was made by another mixture or stage than the one in force, so that it can never be
    /// committed.
    pub(crate) fn is_of_other_change(&self, manifest: &Manifest) -> bool {
        let first = self.queue.front();
        first.is_some_and(|pending| self.differs(pending, manifest))
    }

    fn differs(&self, pending: &Pending, manifest: &Manifest) -> bool {
        let Commit::Item { item, first, .. } = &pending.commit else {
            return false;
        };
        let last = first + (item.tgbs.len() as u64).saturating_sub(1);
        let stage = |seq| item.stage != manifest.stage_at(&self.name, seq);
        if !guards::skips_stage_check() && (stage(*first) || stage(last)) {
            return true;
        }
        if guards::skips_mixture_check() {
            return false;
        }
        let of = |seq| manifest.mixture_at(&self.name, seq);
        item.mixture
            .is_some_and(|mixture| mixture != of(*first) || mixture != of(last))
    }

    /// Whether a seal stops the first commit: it does not stop a finish.
    pub(crate) fn is_stopped_by_seal(&self) -> bool {
        let first = self.queue.front().map(|pending| &pending.commit);
        !matches!(first, None | Some(Commit::Finish))
    }

    /// Drops the commits that `state` shows as done; returns their number. Only this instance writes
    /// under its nonce, so that progress there is its own, whichever producer put the record.
    pub(crate) fn settle(&mut self, state: Option<&ProducerState>) -> usize {
        let before = self.queue.len();
        let Some(state) = state.filter(|p| p.nonce == self.nonce) else {
            return 0;
        };
        while let Some(pending) = self.queue.front() {
            let done = match &pending.commit {
                Commit::Open { .. } => true,
                Commit::Item { item, first, .. } => {
                    first + item.tgbs.len() as u64 <= state.next_seq
                }
                Commit::Finish => state.finished,
            };
            if !done {
                break;
            }
            self.queue.pop_front();
            self.admitted = self.admitted.saturating_sub(1);
        }
        before - self.queue.len()
    }

    /// Returns entries for the admitted commits after the first `skip`, each with the number of commits
    /// that it covers. `epoch` is that of this instance, or the one that it wants to open.
    pub(crate) fn entries(
        &self,
        manifest: &Manifest,
        epoch: Epoch,
        skip: usize,
    ) -> Vec<(Entry, usize)> {
        let mut entries = Vec::new();
        let mut at = skip;
        while entries.len() < ENTRIES_MAX {
            let Some(pending) = self.queue.get(at).filter(|_| at < self.admitted) else {
                break;
            };
            if self.differs(pending, manifest) {
                break;
            }
            let (entry, commits) = match &pending.commit {
                Commit::Open { instance, began } => (self.opened(instance, *began, epoch), 1),
                Commit::Item { .. } => self.batch(manifest, epoch, at),
                Commit::Finish => (self.finished(epoch), 1),
            };
            entries.push((entry, commits));
            at += commits;
        }
        entries
    }

    fn opened(&self, instance: &str, began: Version, epoch: Epoch) -> Entry {
        Entry::Opened(Opened {
            producer: self.name.clone(),
            instance: instance.to_owned(),
            nonce: self.nonce,
            epoch,
            began,
        })
    }

    fn finished(&self, epoch: Epoch) -> Entry {
        Entry::Finished(Finished {
            producer: self.name.clone(),
            epoch,
            final_seq: self.next_seq,
        })
    }

    /// Returns an entry of the longest run of items from `at` that fits; of at least one item, so that
    /// the rules refuse a too large one with an error.
    fn batch(&self, manifest: &Manifest, epoch: Epoch, at: usize) -> (Entry, usize) {
        let (mut tgbs, mut bytes, mut count) = (Vec::new(), 0, 0);
        let mut cursor = Cursor::default();
        let mut first_seq = 0;
        for pending in self.queue.range(at..self.admitted) {
            let Commit::Item {
                item,
                first,
                bytes: size,
            } = &pending.commit
            else {
                break;
            };
            if count == 0 {
                first_seq = *first;
            }
            bytes += size;
            // The cursor and the entry's own fields take the other half.
            let full = tgbs.len() + item.tgbs.len() > self.tgbs_per_entry
                || bytes > ENTRY_BYTES_MAX / 2
                || self.differs(pending, manifest)
                || self.changes_between(manifest, first_seq, *first);
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
            stage: manifest.stage_at(&self.name, first_seq),
            first_step: None,
            tgbs,
        };
        (Entry::Batch(entry), count.max(1))
    }

    /// Whether a mixture or a stage begins after `first`, up to `later`.
    fn changes_between(&self, manifest: &Manifest, first: Seq, later: Seq) -> bool {
        let of = |seq| {
            let mixture = manifest.mixture_at(&self.name, seq);
            (mixture, manifest.stage_at(&self.name, seq))
        };
        of(first) != of(later)
    }

    fn cursor_before(&self, manifest: &Manifest, at: usize) -> Cursor {
        let before = at.checked_sub(1).and_then(|before| self.queue.get(before));
        if let Some(Commit::Item { item, .. }) = before.map(|pending| &pending.commit) {
            return item.cursor.clone();
        }
        let state = manifest.producer(&self.name);
        state.map(|p| p.cursor.clone()).unwrap_or_default()
    }
}
