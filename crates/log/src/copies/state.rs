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
use batchweave_core::manifest::Segment;
use batchweave_core::manifest::record::SnapshotHint;

use crate::error::LogError;

/// Segments kept in memory until they are stored. What is dropped is computed again when asked for.
pub(crate) const UNSTORED_MAX: usize = 128;
/// Records whose sizes are remembered, for when a later one names a snapshot among them.
const SIZES_MAX: usize = 2 * SNAPSHOT_VERSIONS_MAX as usize;
/// Reads by all producers of the records between two snapshots; and the least number of those.
const READS_BETWEEN: u64 = 8192;
const INTERVAL_MIN: u64 = 8;
/// Versions past the boundary after which others step in: drawn between this and four times as
/// many, so that a thousand followers don't all do it.
pub(crate) const PATIENCE: u64 = 16;

/// What a job has done.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// A snapshot is at this version.
    pub(crate) known: Version,
    /// Ours, and its size; none when somebody else was faster.
    pub(crate) hint: Option<SnapshotHint>,
    pub(crate) bytes: u64,
    /// Segments below this number are stored.
    pub(crate) segments: u64,
    pub(crate) removed: Vec<Version>,
    /// The root is another stream's now.
    pub(crate) lost: Option<LogError>,
}

/// What is known of snapshots and of the segments that they imply.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    pub(crate) write: bool,
    /// Newest snapshot read or written.
    pub(crate) newest: Option<SnapshotHint>,
    pub(crate) newest_bytes: u64,
    /// Newest version that a snapshot is known or said to be at, plus one.
    pub(crate) known: Version,
    /// Sizes of the records since then.
    sizes: VecDeque<(Version, u64)>,
    /// Versions beyond the boundary at which we step in for others.
    pub(crate) patience: u64,
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
    pub(crate) fn know(&mut self, version: Version) {
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

    pub(crate) fn note_record(&mut self, version: Version, bytes: u64) {
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
    pub(crate) fn due(&self, next: Version, ours: bool, producers: usize) -> bool {
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

    pub(crate) fn note_written(&mut self, written: &Written) {
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
