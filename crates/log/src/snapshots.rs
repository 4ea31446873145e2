//! Snapshots and index segments: copies of what the log says, written beside it by whoever crosses
//! a boundary; nobody waits for them. Segments first, then the snapshot: it implies its segments.
//!
//! They are due at every 256th version (earlier where many producers read the log), and when the
//! records since the last one have grown large beside it. Then the writer of the record that crossed
//! the boundary writes. Others step in when, some random versions later, no record has named a newer
//! one.

use std::collections::VecDeque;
use std::sync::Arc;

use batchweave_core::ids::Version;
use batchweave_core::limits::{SNAPSHOT_GROWTH, SNAPSHOT_RECORD_BYTES, SNAPSHOT_VERSIONS_MAX};
use batchweave_core::manifest::record::SnapshotHint;
use batchweave_core::manifest::{Folded, Segment};
use rand::RngExt;

use crate::refold::Refold;
use crate::snapshot_job::{WriteJob, Written};
use crate::{Log, LogError};

/// Segments kept in memory until they are stored. What is dropped is computed again when asked for.
const UNSTORED_MAX: usize = 128;
/// Records whose sizes are remembered, for when a later one names a snapshot among them.
const SIZES_MAX: usize = 2 * SNAPSHOT_VERSIONS_MAX as usize;
/// Reads by all producers of the records between two snapshots; and the least number of those.
const READS_BETWEEN: u64 = 8192;
const INTERVAL_MIN: u64 = 8;
/// Versions past the boundary after which others step in: drawn between this and four times as
/// many, so that a thousand followers don't all do it.
const PATIENCE: u64 = 16;

/// What is known of snapshots and of the segments that they imply.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    pub(crate) write: bool,
    /// Newest snapshot read or written.
    pub(crate) newest: Option<SnapshotHint>,
    pub(crate) newest_bytes: u64,
    /// Newest version that a snapshot is known or said to be at, plus one.
    known: Version,
    /// Sizes of the records since then.
    sizes: VecDeque<(Version, u64)>,
    /// Versions beyond the boundary at which we step in for others.
    patience: u64,
    /// Segments that became full since, not known to be stored.
    pub(crate) unstored: VecDeque<Arc<Segment>>,
    /// Segments that were read lately.
    pub(crate) cache: VecDeque<Arc<Segment>>,
    /// Stored snapshots that are none of this log; whoever writes the next one removes them.
    pub(crate) unusable: Vec<Version>,
    /// Found while writing: the root is another stream's now. Nothing more may be folded.
    pub(crate) lost: Option<LogError>,
    /// The write under way.
    pub(crate) writing: Option<tokio::task::JoinHandle<Option<Written>>>,
}

impl Snapshots {
    pub(crate) fn new(write: bool) -> Self {
        Self {
            write,
            patience: PATIENCE,
            ..Self::default()
        }
    }

    /// A snapshot was read or written, or is said to be there.
    fn know(&mut self, version: Version) {
        self.known = self.known.max(version + 1);
        while self.sizes.front().is_some_and(|(at, _)| *at < self.known) {
            self.sizes.pop_front();
        }
    }

    pub(crate) fn note_read(&mut self, hint: SnapshotHint, bytes: u64) {
        self.know(hint.version);
        self.newest = Some(hint);
        self.newest_bytes = bytes;
    }

    /// The fold goes on from this snapshot, which implies its segments.
    pub(crate) fn jumped(&mut self, hint: SnapshotHint, bytes: u64) {
        self.note_read(hint, bytes);
        self.unstored.clear();
    }

    /// The fold begins anew elsewhere; what it is to store is found again on the way.
    pub(crate) fn reopened(&mut self) {
        (self.newest, self.newest_bytes) = (None, 0);
        self.unstored.clear();
        self.cache.clear();
    }

    fn note_record(&mut self, version: Version, bytes: u64) {
        self.sizes.push_back((version, bytes));
        if self.sizes.len() > SIZES_MAX {
            self.sizes.pop_front();
        }
    }

    /// Whether the records since the last snapshot, all but the last `but`, are large beside it.
    fn grown(&self, but: u64) -> bool {
        let counted = self.sizes.len().saturating_sub(but as usize);
        let bytes: u64 = self
            .sizes
            .iter()
            .take(counted)
            .map(|(_, bytes)| bytes)
            .sum();
        bytes >= SNAPSHOT_RECORD_BYTES.max(SNAPSHOT_GROWTH * self.newest_bytes)
    }

    /// Whether the records since the last snapshot are at least a quarter of its size.
    fn outweighs(&self) -> bool {
        let bytes: u64 = self.sizes.iter().map(|(_, bytes)| bytes).sum();
        bytes * SNAPSHOT_GROWTH >= self.newest_bytes
    }

    /// Whether one is due before version `next`. `ours`: our record is the newest.
    fn due(&self, next: Version, ours: bool, producers: usize) -> bool {
        let crossed = || {
            next.is_multiple_of(SNAPSHOT_VERSIONS_MAX)
                || (next.is_multiple_of(interval(producers)) && self.outweighs())
                || (self.grown(0) && !self.grown(1))
        };
        let overdue = SNAPSHOT_VERSIONS_MAX + self.patience;
        (ours && crossed())
            || next.saturating_sub(self.known) >= overdue
            || self.grown(self.patience)
    }

    fn note_written(&mut self, written: &Written) {
        self.lost.clone_from(&written.lost);
        self.know(written.known);
        self.unusable.retain(|v| !written.removed.contains(v));
        if let Some(hint) = written.hint {
            (self.newest, self.newest_bytes) = (Some(hint), written.bytes);
            // Its segments are stored: all but those that became full after it.
            self.unstored.retain(|s| s.segment >= written.segments);
        }
    }
}

/// Versions from one snapshot to the next: fewer where many producers read the log, since each of
/// them that was away reads all that came after the newest snapshot.
fn interval(producers: usize) -> u64 {
    let readers = (producers as u64).next_power_of_two();
    (READS_BETWEEN / readers).clamp(INTERVAL_MIN, SNAPSHOT_VERSIONS_MAX)
}

impl Log {
    /// Counts what was folded towards the next snapshot.
    pub(crate) fn note_folded(&mut self, version: Version, record_bytes: u64, folded: &Folded) {
        let snapshots = &mut self.snapshots;
        snapshots.note_record(version, record_bytes);
        let named = folded.record.as_ref().and_then(|r| r.hints.snapshot);
        if let Some(named) = named.filter(|n| folded.void.is_none() && n.version < version) {
            snapshots.know(named.version);
            // It implies its segments.
            let beyond = |s: &Arc<Segment>| s.filled.is_none_or(|f| f.version > named.version);
            snapshots.unstored.retain(beyond);
        }
        for segment in &folded.segments {
            snapshots.unstored.push_back(Arc::new(segment.clone()));
        }
        let most = if snapshots.write {
            UNSTORED_MAX
        } else {
            UNSTORED_MAX / 4
        };
        while snapshots.unstored.len() > most {
            snapshots.unstored.pop_front();
        }
    }

    /// After a window of the log was folded; `full`: there is more.
    pub(crate) async fn snapshot_behind(&mut self, full: bool) {
        let unstored = self.snapshots.unstored.len();
        if !full || unstored >= UNSTORED_MAX / 8 {
            self.snapshot_if_due(false).await;
        }
        if unstored >= UNSTORED_MAX / 2 {
            self.settle_snapshots().await;
        }
    }

    /// Begins to write a snapshot if one is due at the last folded version. `ours`: our record is
    /// the newest.
    pub(crate) async fn snapshot_if_due(&mut self, ours: bool) {
        self.take_written().await;
        let s = &self.snapshots;
        let next = self.manifest.next_version();
        if !s.write
            || s.writing.is_some()
            || next == 0
            || !s.due(next, ours, self.manifest.producer_count())
        {
            return;
        }
        let job = WriteJob {
            store: Arc::clone(&self.store),
            again: Refold::of(self).wanting(s.unstored.iter().map(|s| s.segment)),
            manifest: self.manifest.clone(),
            unusable: s.unusable.clone(),
            beyond: (!ours).then_some(s.known),
        };
        self.snapshots.patience = self.rng.random_range(PATIENCE..=4 * PATIENCE);
        // Known from now on; should the write fail, the next boundary comes soon enough.
        self.snapshots.know(next - 1);
        self.snapshots.writing = Some(tokio::spawn(job.run()));
        // It begins now, also where commits never wait.
        tokio::task::yield_now().await;
    }

    /// Waits for a snapshot that is being written; for an orderly end.
    pub async fn settle_snapshots(&mut self) {
        if let Some(task) = self.snapshots.writing.take()
            && let Some(written) = task.await.ok().flatten()
        {
            self.snapshots.note_written(&written);
        }
    }

    async fn take_written(&mut self) {
        let writing = self.snapshots.writing.as_ref();
        if writing.is_some_and(tokio::task::JoinHandle::is_finished) {
            self.settle_snapshots().await;
        }
    }
}
