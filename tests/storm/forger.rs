//! A holder of a producer's rights who forges copies of the log: bundles of a fork, for records that the log has and for
//! those to come, and snapshots and index segments with another TGB at a step.

use std::ops::AddAssign;
use std::sync::Arc;

use batchweave_core::ids::Version;
use batchweave_core::json::sign_again;
use batchweave_core::keys;
use batchweave_core::limits::{BUNDLE_RECORDS, SNAPSHOT_VERSIONS_MAX};
use batchweave_core::manifest::entry::JobOpened;
use batchweave_core::manifest::{Bundle, Entry};
use batchweave_core::tgb::Digest;
use batchweave_log::{Located, Log, LogError, LogOptions};
use batchweave_store::memory::MemoryStore;
use batchweave_store::{Store, StoreError, list_all};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::ordered::Scene;

/// Records of a fork.
const FORK: u64 = 24;

/// Objects that were replaced by forged ones, or added.
#[derive(Debug, Default)]
pub(super) struct Forged {
    pub(super) bundles: u64,
    pub(super) snapshots: u64,
    pub(super) segments: u64,
}

impl AddAssign for Forged {
    fn add_assign(&mut self, other: Self) {
        self.bundles += other.bundles;
        self.snapshots += other.snapshots;
        self.segments += other.segments;
    }
}

pub(super) struct Forger {
    rng: StdRng,
    /// The log's records and `stream.json`, as far as the forger has read them.
    copy: Arc<MemoryStore>,
}

impl Forger {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            copy: MemoryStore::new(),
        }
    }

    /// Forges copies of the log as it is now. Faults of the store leave some or all of them out.
    pub(super) fn forge(&mut self, scene: &Scene) -> Forged {
        scene.runtime.block_on(async {
            let store = scene.store().await;
            let mut forged = Forged::default();
            let _ = self.forge_bundles(store.as_ref(), &mut forged).await;
            if let Some(log) = scene.log().await {
                let _ = self.forge_steps(log, &mut forged).await;
            }
            forged
        })
    }

    /// Stores the bundle of each record of a fork that leaves the log at a random one of its newest.
    async fn forge_bundles(
        &mut self,
        store: &dyn Store,
        forged: &mut Forged,
    ) -> Result<(), LogError> {
        let head = self.catch_up(store).await?;
        let from = head
            .saturating_sub(self.rng.random_range(0..FORK / 2))
            .max(1);
        let fork = self.fork(from).await?;
        for last in from..from + FORK {
            let first = (last + 1).saturating_sub(BUNDLE_RECORDS);
            let mut records = Vec::new();
            for version in first..=last {
                let record = fork.get(&keys::log(version), u64::MAX).await?;
                records.push(String::from_utf8(record.to_vec()).unwrap());
            }
            let stream = stream_id(&fork).await;
            let bundle = Bundle {
                format: 1,
                stream,
                first,
                records,
            };
            replace(store, &keys::bundle(last), bundle.to_json().into()).await?;
            forged.bundles += 1;
        }
        Ok(())
    }

    /// Copies the records that the copy lacks. Returns the version after the newest.
    async fn catch_up(&self, store: &dyn Store) -> Result<Version, StoreError> {
        let mut keys_there = vec![keys::STREAM.to_owned()];
        list_all(store, keys::LOG, |object| keys_there.push(object.key)).await?;
        for key in &keys_there {
            if self.copy.head(key).await.is_err() {
                self.copy.overwrite(key, store.get(key, u64::MAX).await?);
            }
        }
        Ok(keys_there.len() as u64 - 1)
    }

    /// Returns the records before `from`, continued by others.
    async fn fork(&mut self, from: Version) -> Result<Arc<MemoryStore>, LogError> {
        let fork = MemoryStore::new();
        let there = (0..from).map(keys::log).chain([keys::STREAM.to_owned()]);
        for key in there {
            fork.overwrite(&key, self.copy.get(&key, u64::MAX).await?);
        }
        let store: Arc<dyn Store> = Arc::clone(&fork) as _;
        let mut log = Log::open(store, &LogOptions::new(self.rng.random())).await?;
        while log.manifest().next_version() < from + FORK {
            self.add_record(&mut log).await?;
        }
        Ok(fork)
    }

    /// Adds a record with which nothing changes for producers and other jobs.
    async fn add_record(&mut self, log: &mut Log) -> Result<(), LogError> {
        let opened = JobOpened {
            request: log.new_request(),
            job: format!("other-{}", self.rng.next_u64()).parse().unwrap(),
            start: 0,
            keep: 1,
            holds: false,
            paces: false,
            lease_seconds: None,
        };
        let entry = Entry::JobOpened(opened);
        log.commit_entry("forger", |_| entry.clone()).await?;
        Ok(())
    }

    /// Adds genuine records up to the version at which a snapshot is due. Returns false if faults of the store left some
    /// out.
    pub(super) fn lengthen(&mut self, scene: &Scene) -> bool {
        scene.runtime.block_on(async {
            let Some(mut log) = scene.log().await else {
                return false;
            };
            while log.manifest().next_version() < SNAPSHOT_VERSIONS_MAX {
                if self.add_record(&mut log).await.is_err() {
                    return false;
                }
            }
            true
        })
    }

    /// Puts another TGB at a random step of each snapshot and segment that has it.
    async fn forge_steps(&mut self, mut log: Log, forged: &mut Forged) -> Result<(), LogError> {
        let steps = log.manifest().next_step();
        if steps == 0 {
            return Ok(());
        }
        let Located::At(entry) = log.locate(self.rng.random_range(0..steps)).await? else {
            return Ok(());
        };
        let text = |digest: &Digest| serde_json::to_string(digest).unwrap();
        let (digest, other) = (text(&entry.tgb.digest), text(&Digest([7; 32])));
        let store = Arc::clone(log.store());
        let mut found = Vec::new();
        for prefix in [keys::SNAPSHOTS, keys::INDEX] {
            list_all(store.as_ref(), prefix, |object| found.push(object.key)).await?;
        }
        for key in found {
            let body = store.get(&key, u64::MAX).await?;
            let text = String::from_utf8_lossy(&body);
            if keys::bundle_version(&key).is_some() || !text.contains(&digest) {
                continue;
            }
            let Some(body) = sign_again(text.replace(&digest, &other).as_bytes()) else {
                continue;
            };
            replace(store.as_ref(), &key, body.into()).await?;
            if key.starts_with(keys::SNAPSHOTS) {
                forged.snapshots += 1;
            } else {
                forged.segments += 1;
            }
        }
        Ok(())
    }
}

async fn stream_id(store: &MemoryStore) -> batchweave_core::ids::StreamId {
    let bytes = store.get(keys::STREAM, u64::MAX).await.unwrap();
    let stream: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    serde_json::from_value(stream["stream_id"].clone()).unwrap()
}

async fn replace(store: &dyn Store, key: &str, body: Bytes) -> Result<(), StoreError> {
    store.delete(key).await?;
    store.create(key, body).await.map(drop)
}
