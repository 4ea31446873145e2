//! Starts the write of a snapshot at the last folded version when one is due.

use std::sync::Arc;

use batchweave_core::ids::Version;
use batchweave_core::manifest::{Folded, Segment};
use futures::future::BoxFuture;
use rand::RngExt;

use crate::copies::state::{PATIENCE, UNSTORED_MAX};
use crate::copies::writer::CopyWriter;
use crate::log::Log;
use crate::read::refold::Refold;

impl Log {
    /// Counts a folded record towards the next snapshot.
    pub(crate) fn note_folded(&mut self, version: Version, record_bytes: u64, folded: &Folded) {
        let snapshots = &mut self.snapshots;
        snapshots.note_record(version, record_bytes);
        let named = folded.record.as_ref().and_then(|r| r.hints.snapshot);
        if let Some(named) = named.filter(|n| folded.void.is_none() && n.version < version) {
            snapshots.know(named.version);
            // Its segments are stored.
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

    /// Writes a snapshot after a window of the log, if one is due. `full`: more records follow.
    pub(crate) async fn snapshot_after_window(&mut self, full: bool) {
        let unstored = self.snapshots.unstored.len();
        if !full || unstored >= UNSTORED_MAX / 8 {
            self.snapshot_if_due(false).await;
        }
        if unstored >= UNSTORED_MAX / 2 {
            self.settle_snapshots().await;
        }
    }

    /// Starts to write a snapshot if one is due. `ours`: our record is the newest.
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
        let job = CopyWriter {
            store: Arc::clone(&self.store),
            refold: Refold::for_log(self).keeping(s.unstored.iter().map(|s| s.segment)),
            manifest: self.manifest.clone(),
            unusable: s.unusable.clone(),
            unless_from: (!ours).then_some(s.known),
        };
        self.snapshots.patience = self.rng.random_range(PATIENCE..=4 * PATIENCE);
        // Known from now on; if the write fails, the next boundary is early enough.
        self.snapshots.know(next - 1);
        self.snapshots.writing = Some(tokio::spawn(job.run()));
        // The task starts now, even when commits never wait.
        tokio::task::yield_now().await;
    }

    /// Waits for the snapshot that is being written.
    pub fn settle_snapshots(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(task) = self.snapshots.writing.take()
                && let Some(written) = task.await.ok().flatten()
            {
                self.snapshots.note_written(&written);
            }
        })
    }

    async fn take_written(&mut self) {
        let writing = self.snapshots.writing.as_ref();
        if writing.is_some_and(tokio::task::JoinHandle::is_finished) {
            self.settle_snapshots().await;
        }
    }
}
