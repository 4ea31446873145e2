//! A training run as its daemons leave it in the store: attempts, marks, progress.

use batchweave_core::fixtures::Attempt;
use batchweave_core::ids::{AttemptId, JobName};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{AttemptOpened, Axis, Parent};
use batchweave_store::Create;

use crate::world::World;

impl World {
    /// Opens the next attempt of `job`, which is open, on `dp` data coordinates.
    pub(crate) async fn attempt(&self, job: &str, dp: u32, start: u64, parent: Option<(u64, u64)>) {
        let mut log = self.log().await;
        let make = |m: &batchweave_core::manifest::Manifest| {
            let state = &m.jobs()[&job.parse().unwrap()];
            let number = state.attempts.len() as u8;
            Entry::AttemptOpened(AttemptOpened {
                job: job.parse().unwrap(),
                opened: state.opened,
                attempt: AttemptId([number + 1; 16]),
                predecessor: state.attempts.last().map(|a| a.id),
                parent: parent.map(|(attempt, step)| Parent { attempt, step }),
                inherited: None,
                start,
                dp_size: dp,
                mesh: vec![
                    Axis {
                        name: "dp".into(),
                        size: dp,
                    },
                    Axis {
                        name: "tp".into(),
                        size: 2,
                    },
                ],
            })
        };
        assert!(log.commit_entry("consumer", make).await.unwrap().is_some());
    }

    async fn put(&self, key: &str, body: Vec<u8>) {
        let put = self.store().await.create(key, body.into()).await;
        assert_eq!(put.unwrap(), Create::Created);
    }

    /// The mark of one data coordinate, or of one for all. `job` is `name@version`.
    pub(crate) async fn mark(&self, job: &str, attempt: u64, step: u64, rank: Option<u32>) {
        let (name, opened) = job.split_once('@').unwrap();
        let job: JobName = name.parse().unwrap();
        let m = self.log().await.manifest().clone();
        let state = m.jobs().get(&job).and_then(|state| state.attempt(attempt));
        let attempt = Attempt {
            stream: m.stream_id(),
            job,
            opened: opened.parse().unwrap(),
            number: attempt,
            dp_size: state.map_or(64, |attempt| attempt.dp_size),
        };
        let mark = attempt.mark(step, rank);
        self.put(&mark.key(), mark.to_json()).await;
    }

    /// The data coordinates `ranks`, all on one node, have received all below `step`.
    pub(crate) async fn progress(&self, job: &str, attempt: u64, step: u64, ranks: (u32, u32)) {
        let (name, opened) = job.split_once('@').unwrap();
        let attempt = Attempt {
            stream: self.log().await.manifest().stream_id(),
            job: name.parse().unwrap(),
            opened: opened.parse().unwrap(),
            number: attempt,
            dp_size: 1,
        };
        let progress = attempt.progress(step, ranks);
        self.put(&progress.key(), progress.to_json()).await;
    }
}
