//! The snapshots and index segments that are known, and when the next snapshot is due.
//!
//! Index segments are written before the snapshot that implies them, in the background. A snapshot is due at
//! every 256th version (earlier where many producers read the log), and when the records since the last one
//! have grown large compared to it. The writer of the record that crosses such a boundary writes it. Other
//! instances step in when, some random versions later, no record has named a newer snapshot.

use std::collections::VecDeque;
use std::sync::Arc;

use batchweave_core::ids::Version;
use batchweave_core::limits::{SNAPSHOT_GROWTH, SNAPSHOT_RECORD_BYTES, SNAPSHOT_VERSIONS_MAX};
use batchweave_core::manifest::Segment;
use batchweave_core::manifest::record::SnapshotHint;

use crate::error::LogError;

/// Segments kept in memory until they are stored. Further ones are dropped, and computed again when needed.
pub(crate) const UNSTORED_MAX: usize = 128;
/// Records whose sizes are remembered, in case a later record names a snapshot among them.
const SIZES_MAX: usize = 2 * SNAPSHOT_VERSIONS_MAX as usize;
/// Reads by all producers together of the records between two snapshots.
const READS_BETWEEN: u64 = 8192;
/// The least number of versions between two snapshots.
const INTERVAL_MIN: u64 = 8;
/// Versions past the boundary after which another instance steps in: drawn between this and four times as
/// many, so that not all of a thousand followers write.
pub(crate) const PATIENCE: u64 = 16;

/// The results of a write.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// A snapshot exists at this version.
    pub(crate) known: Version,
    /// Our snapshot; `None` when another writer was faster.
    pub(crate) hint: Option<SnapshotHint>,
    pub(crate) bytes: u64,
    /// Segments below this number are stored.
    pub(crate) segments: u64,
    pub(crate) removed: Vec<Version>,
    /// Why nothing more may be folded: the root holds another stream, or a second fold differs.
    pub(crate) lost: Option<LogError>,
}

/// The known snapshots and segments.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    pub(crate) write: bool,
    /// Newest snapshot read or written.
    pub(crate) newest: Option<SnapshotHint>,
    pub(crate) newest_bytes: u64,
    /// The newest version at which a snapshot is known or claimed, plus one.
    pub(crate) known: Version,
    /// Sizes of the records since that version.
    sizes: VecDeque<(Version, u64)>,
    /// Versions past the boundary at which this instance steps in.
    pub(crate) patience: u64,
    /// Full segments that are not known to be stored.
    pub(crate) unstored: VecDeque<Arc<Segment>>,
    pub(crate) cache: VecDeque<Arc<Segment>>,
    /// Stored snapshots that do not belong to this log; the writer of the next snapshot removes them.
    pub(crate) unusable: Vec<Version>,
    /// Why nothing more may be folded, found while writing.
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

    /// Notes that a snapshot was read or written, or that a record names it.
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

    /// Notes that the fold continues from this snapshot, whose segments are stored.
    pub(crate) fn jumped(&mut self, hint: SnapshotHint, bytes: u64) {
        self.note_read(hint, bytes);
        self.unstored.clear();
    }

    /// Notes that the fold began again elsewhere: it finds the segments to store again.
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

    /// Whether the records since the last snapshot, without the last `but`, are large compared to it.
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

    /// Whether a snapshot is due before version `next`. `ours`: our record is the newest.
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
            // Its segments are stored.
            self.unstored.retain(|s| s.segment >= written.segments);
        }
    }
}

/// Returns the versions from one snapshot to the next: fewer with many producers, since each of them that fell
/// behind reads all records after the newest snapshot.
fn interval(producers: usize) -> u64 {
    let readers = (producers as u64).next_power_of_two();
    (READS_BETWEEN / readers).clamp(INTERVAL_MIN, SNAPSHOT_VERSIONS_MAX)
}
