//! Finds the newest snapshot that belongs to the log, together with the records that follow it.

use std::sync::Arc;

use batchweave_core::error::FormatError;
use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::limits::{CATCH_UP_WINDOW, NUMBER_MAX};
use batchweave_core::manifest::record::SnapshotHint;
use batchweave_core::manifest::{Manifest, Record};
use batchweave_core::stream::StreamConfig;
use batchweave_store::{ErrorKind, Store, StoreError, list_all};
use bytes::Bytes;
use futures::future::{join_all, try_join};
use tracing::warn;

use crate::error::LogError;
use crate::read::beginning::beginning;
use crate::read::fitting::FreshReads;
use crate::read::window::{self, Window};

/// Records read together with a snapshot when the log is opened. Most of them do not exist yet, and
/// hundreds of producers may open at once.
const FIRST_WINDOW: u64 = 8;
/// Older snapshots read in one round when the newest cannot be used.
const OLDER_PER_ROUND: usize = 16;
/// Rounds of reads of older snapshots.
const OLDER_ROUNDS: usize = 3;
/// Listings when the newest snapshot is removed between its listing and its read.
const LISTINGS_MAX: usize = 3;

/// The start of a fold.
pub(crate) struct Start {
    pub(crate) manifest: Manifest,
    pub(crate) snapshot: Option<(SnapshotHint, u64)>,
    /// Records that were read together with the snapshot.
    pub(crate) tail: Window,
    /// The size of the next window.
    pub(crate) next_window: u64,
}

impl Start {
    pub(crate) async fn at_zero(
        store: &dyn Store,
        stream: &StreamConfig,
        stream_json: &[u8],
    ) -> Result<Self, LogError> {
        let ((tail, next_window), manifest) = try_join(
            window::first(store, 0, FIRST_WINDOW),
            beginning(store, stream.clone(), stream_json),
        )
        .await?;
        Ok(Self {
            manifest,
            snapshot: None,
            tail,
            next_window,
        })
    }
}

/// The search for the newest usable snapshot.
pub(crate) struct Search<'s> {
    pub(crate) store: &'s Arc<dyn Store>,
    pub(crate) stream: &'s Arc<StreamConfig>,
    /// The hash of stream.json.
    pub(crate) genesis: Hash,
    pub(crate) unusable: Vec<Version>,
}

/// The state of one snapshot.
pub(crate) enum Found {
    Good(Box<Start>),
    /// Deleted since it was listed: newer ones exist.
    Gone,
    Unusable,
}

/// A snapshot and the records from its own on, as read.
struct Candidate {
    snapshot: Option<Bytes>,
    records: Window,
    /// The size of the next window.
    next_window: u64,
}

impl Search<'_> {
    pub(crate) async fn run(
        mut self,
        mut versions: Vec<Version>,
    ) -> Result<(Option<Start>, Vec<Version>), LogError> {
        for _ in 0..LISTINGS_MAX {
            versions.sort_unstable_by(|a, b| b.cmp(a));
            let Some(&newest) = versions.first() else {
                return Ok((None, self.unusable));
            };
            match self.try_start(newest, FIRST_WINDOW).await? {
                Found::Good(start) => return Ok((Some(*start), self.unusable)),
                Found::Unusable => break,
                Found::Gone => versions = list_snapshots(self.store.as_ref()).await?,
            }
        }
        let others: Vec<_> = versions.iter().skip(1).copied().collect();
        for some in others.chunks(OLDER_PER_ROUND).take(OLDER_ROUNDS) {
            let tried = join_all(some.iter().map(|v| read(self.store.as_ref(), *v, 0))).await;
            let mut good = None;
            for (version, found) in some.iter().zip(tried) {
                match self.validate(*version, found?)? {
                    Found::Good(start) if good.is_none() => good = Some(*start),
                    _ => {}
                }
            }
            if good.is_some() {
                return Ok((good, self.unusable));
            }
        }
        Ok((None, self.unusable))
    }

    pub(crate) async fn try_start(
        &mut self,
        version: Version,
        more: u64,
    ) -> Result<Found, LogError> {
        let noted = self.unusable.len();
        let candidate = read(self.store.as_ref(), version, more).await?;
        match self.validate(version, candidate) {
            // One wrong read of the snapshot or of a record says nothing about either.
            Ok(Found::Unusable) | Err(LogError::Altered { .. }) => {
                self.unusable.truncate(noted);
                let fresh = FreshReads::around(self.store);
                let candidate = read(fresh.as_ref(), version, more).await?;
                self.validate(version, candidate)
            }
            found => found,
        }
    }

    /// Reads a snapshot with its own record only.
    pub(crate) async fn try_own(&mut self, version: Version) -> Result<Found, LogError> {
        self.try_start(version, 0).await
    }

    fn validate(
        &mut self,
        version: Version,
        Candidate {
            snapshot,
            records: Window { mut records, read },
            next_window,
        }: Candidate,
    ) -> Result<Found, LogError> {
        let Some(bytes) = snapshot else {
            return Ok(Found::Gone);
        };
        let manifest = match Manifest::from_snapshot(Arc::clone(self.stream), &bytes, version) {
            Ok(manifest) => manifest,
            Err(e) => {
                warn!(version, error = %e, "ignoring an unusable snapshot");
                // A snapshot of another build is not removed.
                if !matches!(e, FormatError::UnknownFormat { .. }) {
                    self.unusable.push(version);
                }
                return Ok(Found::Unusable);
            }
        };
        if manifest.genesis() != self.genesis {
            // The log and its snapshots continue another stream.json: it was altered.
            return Err(LogError::Altered {
                key: keys::STREAM.to_owned(),
                held: manifest.genesis(),
            });
        }
        let hint = SnapshotHint {
            version,
            hash: Hash::sha256(&bytes),
        };
        let tail = records.split_off(records.len().min(1));
        if let Some(reason) = contradiction(&manifest, hint, records.first(), &tail)? {
            warn!(
                version,
                reason, "ignoring a snapshot that does not belong to this log"
            );
            self.unusable.push(version);
            return Ok(Found::Unusable);
        }
        let tail = Window {
            records: tail,
            read: read.saturating_sub(1),
        };
        Ok(Found::Good(Box::new(Start {
            manifest,
            snapshot: Some((hint, bytes.len() as u64)),
            tail,
            next_window,
        })))
    }
}

/// Reads a snapshot, and `more` + 1 records from its own on.
async fn read(store: &dyn Store, version: Version, more: u64) -> Result<Candidate, LogError> {
    let snapshot = async {
        let key = keys::snapshot(version);
        match store.get(&key, keys::bytes_max(&key)).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.is_not_found() => Ok(None),
            // Unusable, like any other bytes that are not a snapshot.
            Err(e) if e.kind == ErrorKind::TooLarge => {
                warn!(version, error = %e, "a snapshot is too large");
                Ok(Some(Bytes::new()))
            }
            Err(e) => Err(LogError::from(e)),
        }
    };
    let records = async {
        match more {
            0 => Ok((window::read(store, version, 1).await?, CATCH_UP_WINDOW)),
            more => window::first(store, version, more + 1).await,
        }
    };
    let (snapshot, (records, next_window)) = try_join(snapshot, records).await?;
    Ok(Candidate {
        snapshot,
        records,
        next_window,
    })
}

/// Returns what in the log contradicts a snapshot, if anything. Fails when the snapshot and the next record agree
/// on another hash of the record between them: then that record was altered.
fn contradiction(
    manifest: &Manifest,
    hint: SnapshotHint,
    record: Option<&Bytes>,
    tail: &[Bytes],
) -> Result<Option<&'static str>, LogError> {
    let later = (manifest.next_version()..).zip(tail);
    let mut later = later
        .filter_map(|(version, bytes)| Record::from_json(bytes, version).ok())
        .filter(|record| record.stream == manifest.stream_id());
    let Some(record) = record else {
        return Ok(Some("the log has no such version"));
    };
    if Hash::sha256(record) != manifest.prev() {
        return match later.next() {
            Some(next) if next.prev == manifest.prev() => Err(LogError::Altered {
                key: keys::log(hint.version),
                held: manifest.prev(),
            }),
            _ => Ok(Some("its record is another one, or was altered since")),
        };
    }
    let names_another = |record: Record| {
        let named = record.hints.snapshot;
        named.is_some_and(|named| named.version == hint.version && named.hash != hint.hash)
    };
    Ok(later
        .any(names_another)
        .then_some("a later record names another hash for it"))
}

/// Lists the versions of all snapshots.
pub(crate) async fn list_snapshots(store: &dyn Store) -> Result<Vec<Version>, StoreError> {
    let mut versions = Vec::new();
    list_all(store, keys::SNAPSHOTS, |object| {
        let version = keys::snapshot_version(&object.key);
        versions.extend(version.filter(|version| *version < NUMBER_MAX));
    })
    .await?;
    Ok(versions)
}
