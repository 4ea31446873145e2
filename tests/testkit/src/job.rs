//! A job with one attempt, as its daemons and ranks leave it in the store.

use std::sync::Arc;

use batchweave_core::fixtures::Attempt;
use batchweave_core::ids::{JobName, Step};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{AttemptOpened, Axis, JobOpened};
use batchweave_log::Log;
use batchweave_store::Store;

/// An open job whose only attempt, of one data coordinate, is open.
#[derive(Debug)]
pub struct TestJob {
    attempt: Attempt,
    store: Arc<dyn Store>,
}

impl TestJob {
    /// Opens a job that retains its last checkpoint, or as `change` sets it, and its first attempt.
    ///
    /// # Panics
    /// When the log cannot be written or refuses an entry.
    pub async fn open(log: &mut Log, name: &str, change: impl FnOnce(&mut JobOpened)) -> Self {
        let job: JobName = name.parse().unwrap();
        let mut entry = JobOpened {
            request: log.new_request(),
            job: job.clone(),
            start: 0,
            keep: 1,
            holds: true,
            paces: false,
            lease_seconds: None,
        };
        change(&mut entry);
        let opened = log
            .commit_entry("test", |_| Entry::JobOpened(entry.clone()))
            .await;
        let attempt = Attempt {
            stream: log.manifest().stream_id(),
            job,
            opened: opened.unwrap().unwrap(),
            number: 0,
            dp_size: 1,
        };
        let opening = first_attempt(&attempt, entry.start);
        let opened = log
            .commit_entry("test", |_| Entry::AttemptOpened(opening.clone()))
            .await;
        opened.unwrap();
        let store = Arc::clone(log.store());
        Self { attempt, store }
    }

    /// Returns the attempt, for the keys and contents of its objects.
    pub fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Stores a mark of all ranks at `step`.
    ///
    /// # Panics
    /// When the store refuses it.
    pub async fn mark(&self, step: Step) {
        let mark = self.attempt.mark(step, None);
        self.put(&mark.key(), mark.to_json()).await;
    }

    /// Stores that all ranks received each step below `step`.
    ///
    /// # Panics
    /// When the store refuses it.
    pub async fn progress(&self, step: Step) {
        let progress = self.attempt.progress(step, (0, 0));
        self.put(&progress.key(), progress.to_json()).await;
    }

    async fn put(&self, key: &str, body: Vec<u8>) {
        let _ = self.store.create(key, body.into()).await.unwrap();
    }
}

/// Returns the entry that opens the first attempt of a job.
fn first_attempt(attempt: &Attempt, start: Step) -> AttemptOpened {
    AttemptOpened {
        job: attempt.job.clone(),
        opened: attempt.opened,
        attempt: attempt.id(),
        predecessor: None,
        parent: None,
        inherited: None,
        start,
        dp_size: 1,
        mesh: vec![Axis {
            name: "dp".into(),
            size: 1,
        }],
    }
}
