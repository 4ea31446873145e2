//! A node's marks and progress, as a consumer daemon makes them: create-only objects under the
//! attempt's folder; a newer progress first, then the older ones are deleted.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{Step, StreamId};
use batchweave_core::keys;
use batchweave_core::lifecycle::{Mark, Progress};
use batchweave_store::Store;
use bytes::Bytes;

use super::node::Open;
use crate::actor::Actor;

/// Tries of one create; the next mark or progress will do as well.
const TRIES: u32 = 4;

/// Who makes the signs of one data coordinate.
pub(super) struct Signs {
    pub(super) store: Arc<dyn Store>,
    pub(super) actor: Arc<Actor>,
    pub(super) stream: StreamId,
    pub(super) coordinate: u32,
    /// Progress that is stored.
    pub(super) published: Vec<String>,
}

impl Signs {
    /// Everything below `step` was received.
    pub(super) async fn progress(&mut self, open: &Open, step: Step) {
        let node = format!("{}n{}", self.coordinate, self.actor.id);
        let coordinates = (self.coordinate, self.coordinate);
        let attempt = (&open.job, open.opened, open.attempt);
        let key = keys::progress(attempt.0, attempt.1, attempt.2, step, coordinates, &node);
        let progress = Progress {
            format: 1,
            stream: self.stream,
            job: open.job.clone(),
            opened: open.opened,
            attempt: open.attempt,
            id: open.id,
            node,
            first: self.coordinate,
            last: self.coordinate,
            step,
            at: "2026-01-01T00:00:00Z".to_owned(),
        };
        if self.published.contains(&key) || !self.create(&key, progress.to_json()).await {
            return;
        }
        for older in std::mem::replace(&mut self.published, vec![key]) {
            // What stays says less; it does no harm.
            if self.store.delete(&older).await.is_err() {
                self.published.push(older);
            }
        }
    }

    /// The model's checkpoint of `step` is durable; true when the mark surely is, too.
    pub(super) async fn mark(&self, open: &Open, step: Step, dp_rank: Option<u32>) -> bool {
        let key = keys::mark(&open.job, open.opened, open.attempt, step, dp_rank);
        let mark = Mark {
            format: 1,
            stream: self.stream,
            job: open.job.clone(),
            opened: open.opened,
            attempt: open.attempt,
            id: open.id,
            dp_rank,
            dp_size: open.dp_size,
            step,
            state: String::new(),
        };
        self.create(&key, mark.to_json()).await
    }

    async fn create(&self, key: &str, body: impl Into<Bytes>) -> bool {
        let body = body.into();
        for _ in 0..TRIES {
            if self.store.create(key, body.clone()).await.is_ok() {
                return true;
            }
            self.actor.sleep(Duration::from_millis(50)).await;
        }
        false
    }
}
