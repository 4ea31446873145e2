//! A training run as its daemons leave it in the store: attempts, marks, progress.

use batchweave_core::ids::AttemptId;
use batchweave_core::keys;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{AttemptOpened, Axis, Parent};
use batchweave_store::Create;
use bytes::Bytes;

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

    async fn put(&self, key: &str) {
        let put = self.store().await.create(key, Bytes::from("{}")).await;
        assert_eq!(put.unwrap(), Create::Created);
    }

    /// The mark of one data coordinate, or of one for all. `job` is `name@version`.
    pub(crate) async fn mark(&self, job: &str, attempt: u64, step: u64, rank: Option<u32>) {
        let (name, opened) = job.split_once('@').unwrap();
        let (name, opened) = (name.parse().unwrap(), opened.parse().unwrap());
        self.put(&keys::mark(&name, opened, attempt, step, rank))
            .await;
    }

    /// The data coordinates `ranks`, all on one node, have received all below `step`.
    pub(crate) async fn progress(&self, job: &str, attempt: u64, step: u64, ranks: (u32, u32)) {
        let (name, opened) = job.split_once('@').unwrap();
        let (name, opened) = (name.parse().unwrap(), opened.parse().unwrap());
        self.put(&keys::progress(&name, opened, attempt, step, ranks, "a1"))
            .await;
    }
}
