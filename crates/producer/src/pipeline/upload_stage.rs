//! The last stage before the commit task: uploads several objects at once, and hands them on in order.

use std::sync::Arc;

use batchweave_log::CommitQueue;
use futures::stream::{self, StreamExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::batch::BatchGroup;
use super::budget::Budget;
use super::repeated::Repeated;
use super::upload::{PartAssembler, Uploader};
use crate::error::RunError;

/// Objects that wait for a held commit, beyond which nothing more is uploaded: a few, so that they are there at the
/// moment when the job has advanced.
const HELD_OBJECTS: usize = 4;

/// The upload stage, the last one before the commit task.
pub(super) struct UploadStage {
    pub(super) repeated: Repeated,
    pub(super) uploader: Arc<Uploader>,
    pub(super) at_once: usize,
    pub(super) budget: Budget,
}

impl UploadStage {
    /// Returns true when all groups are uploaded and handed to the commit task.
    pub(super) async fn run(
        mut self,
        groups: mpsc::Receiver<BatchGroup>,
        queue: &CommitQueue,
        stop: &CancellationToken,
    ) -> Result<bool, RunError> {
        let from = (groups, queue.flow_control(), self.budget);
        let admitted = stream::unfold(from, async |(mut groups, mut standing, budget)| {
            let _ = standing.wait_for(|now| now.held_items < HELD_OBJECTS).await;
            let group = groups.recv().await?;
            let bytes = group.bytes.saturating_add(group.memory);
            let permit = budget.take(bytes).await?;
            Some(((group, permit), (groups, standing, budget)))
        });
        let uploads = admitted
            .take_until(stop.cancelled())
            .map(|(group, permit)| {
                let upload = self.uploader.clone().upload(group);
                tokio::spawn(async move {
                    let uploaded = upload.await;
                    drop(permit);
                    uploaded
                })
            });
        let mut uploads = std::pin::pin!(uploads.buffered(self.at_once));
        let mut parts = PartAssembler::default();
        while let Some(upload) = uploads.next().await {
            let Some(item) = parts.add(upload.map_err(|why| RunError::lost("upload", why))??)
            else {
                continue;
            };
            let Some(item) = self.repeated.take(item)? else {
                continue;
            };
            if !queue.submit(item).await {
                return Ok(false);
            }
        }
        if stop.is_cancelled() {
            return Ok(false);
        }
        self.repeated.check_end().map(|()| true)
    }
}
