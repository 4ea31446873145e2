//! Opening in few rounds of parallel requests: {stream.json, LIST snapshots/}, {newest snapshot, the
//! window of the log that begins with its record}, further windows. The record proves that the
//! snapshot belongs to this log. An unusable snapshot is skipped with a warning: the log is the truth.

use std::sync::Arc;

use batchweave_core::error::FormatError;
use batchweave_core::guards;
use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::limits::{CATCH_UP_WINDOW, NUMBER_MAX};
use batchweave_core::manifest::record::SnapshotHint;
use batchweave_core::manifest::{Manifest, Record};
use batchweave_core::stream::StreamConfig;
use batchweave_store::{ErrorKind, Store, StoreError};
use bytes::Bytes;
use futures::future::{join, join_all, try_join};
use tracing::warn;

use crate::patient::Patient;
use crate::window::Window;
use crate::{Log, LogError, LogOptions, window};

/// Records read together with the snapshot: most of them are not there, and hundreds of producers
/// may open at once.
const FIRST_WINDOW: u64 = 8;
/// A snapshot that spares fewer records is not worth its requests.
const JUMP_MIN: u64 = 16;
/// Records read with it.
const JUMP_WINDOW: u64 = 8;
/// Older snapshots looked at in one round when the newest can't be used, and such rounds.
const OTHERS: usize = 16;
const OTHERS_ROUNDS: usize = 3;
/// Listings again after the newest snapshot was removed while we asked for it.
const LISTINGS: usize = 3;

impl Log {
    /// Opens the stream at the store's root and folds to its head.
    pub async fn open(store: Arc<dyn Store>, options: &LogOptions) -> Result<Self, LogError> {
        let raw = store;
        let store = Patient::around(Arc::clone(&raw), Arc::clone(&options.clock));
        let stream = store.get(keys::STREAM, keys::bytes_max(keys::STREAM));
        let (stream, listed) = join(stream, list_snapshots(store.as_ref())).await;
        let stream_json = match stream {
            Ok(bytes) => bytes,
            Err(e) if e.is_not_found() => {
                return Err(LogError::NoStream {
                    root: store.root().to_owned(),
                });
            }
            Err(e) => return Err(e.into()),
        };
        let stream = Arc::new(StreamConfig::from_json(&stream_json, keys::STREAM)?);
        let search = Search {
            store: store.as_ref(),
            stream: &stream,
            genesis: Hash::sha256(&stream_json),
            unusable: Vec::new(),
        };
        let (start, unusable) = search.run(listed?).await?;
        let start = match start {
            Some(start) => start,
            None => Start::beginning(store.as_ref(), &stream, &stream_json).await?,
        };
        let mut log = Self::new(store, start.manifest, options);
        if let Some((hint, bytes)) = start.snapshot {
            log.base = Some(hint.version);
            log.snapshots.note_read(hint, bytes);
        }
        log.snapshots.unusable = unusable;
        let (_, at_head) = log.fold_window(start.tail).await?;
        log.raw = raw;
        log.window = start.next_window;
        if !at_head {
            log.catch_up().await?;
        }
        log.window = 1;
        Ok(log)
    }
}

impl Log {
    /// Goes on from the newest snapshot, if it is well ahead; false when there is none that can be
    /// used: the records are there in any case.
    pub(crate) async fn jump(&mut self) -> Result<bool, LogError> {
        let store = Arc::clone(&self.store);
        let least = self.manifest.next_version() + JUMP_MIN;
        let newest = list_snapshots(store.as_ref()).await?.into_iter().max();
        let Some(newest) = newest.filter(|v| *v >= least || guards::jumps_back()) else {
            return Ok(false);
        };
        let stream = Arc::new(self.manifest.stream().clone());
        let mut search = Search {
            store: store.as_ref(),
            stream: &stream,
            genesis: self.manifest.genesis(),
            unusable: Vec::new(),
        };
        let Found::Good(start) = search.try_start(newest, JUMP_WINDOW).await? else {
            return Ok(false);
        };
        self.manifest = start.manifest;
        if let Some((hint, bytes)) = start.snapshot {
            self.base = Some(hint.version);
            self.snapshots.jumped(hint, bytes);
        }
        self.fold_window(start.tail).await?;
        Ok(true)
    }
}

/// Where the fold begins.
pub(crate) struct Start {
    pub(crate) manifest: Manifest,
    snapshot: Option<(SnapshotHint, u64)>,
    /// Records that were read with it.
    tail: Window,
    /// How many to ask for next.
    next_window: u64,
}

impl Start {
    async fn beginning(
        store: &dyn Store,
        stream: &StreamConfig,
        stream_json: &[u8],
    ) -> Result<Self, LogError> {
        let (tail, next_window) = window::first(store, 0, FIRST_WINDOW).await?;
        Ok(Self {
            manifest: Manifest::new(stream.clone(), stream_json),
            snapshot: None,
            tail,
            next_window,
        })
    }
}

/// The search for the newest snapshot that can be used.
pub(crate) struct Search<'s> {
    pub(crate) store: &'s dyn Store,
    pub(crate) stream: &'s Arc<StreamConfig>,
    /// SHA-256 of stream.json.
    pub(crate) genesis: Hash,
    pub(crate) unusable: Vec<Version>,
}

/// What one snapshot was found to be.
pub(crate) enum Found {
    Good(Box<Start>),
    /// Removed since it was listed: there are newer ones.
    Gone,
    Unusable,
}

/// A snapshot and the records from its own on, as they are in the store.
struct Looked {
    snapshot: Option<Bytes>,
    records: Window,
    /// How many to ask for next.
    next_window: u64,
}

impl Search<'_> {
    async fn run(
        mut self,
        mut versions: Vec<Version>,
    ) -> Result<(Option<Start>, Vec<Version>), LogError> {
        for _ in 0..LISTINGS {
            versions.sort_unstable_by(|a, b| b.cmp(a));
            let Some(&newest) = versions.first() else {
                return Ok((None, self.unusable));
            };
            match self.try_start(newest, FIRST_WINDOW).await? {
                Found::Good(start) => return Ok((Some(*start), self.unusable)),
                Found::Unusable => break,
                Found::Gone => versions = list_snapshots(self.store).await?,
            }
        }
        let others: Vec<_> = versions.iter().skip(1).copied().collect();
        for some in others.chunks(OTHERS).take(OTHERS_ROUNDS) {
            let tried = join_all(some.iter().map(|v| self.look(*v, 0))).await;
            let mut good = None;
            for (version, found) in some.iter().zip(tried) {
                match self.judge(*version, found?)? {
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

    async fn try_start(&mut self, version: Version, more: u64) -> Result<Found, LogError> {
        let looked = self.look(version, more).await?;
        self.judge(version, looked)
    }

    /// The snapshot with its own record alone.
    pub(crate) async fn try_own(&mut self, version: Version) -> Result<Found, LogError> {
        self.try_start(version, 0).await
    }

    /// The snapshot, and from its own record on `more` + 1 records.
    async fn look(&self, version: Version, more: u64) -> Result<Looked, LogError> {
        let snapshot = async {
            let key = keys::snapshot(version);
            match self.store.get(&key, keys::bytes_max(&key)).await {
                Ok(bytes) => Ok(Some(bytes)),
                Err(e) if e.is_not_found() => Ok(None),
                // No snapshot of ours, like any other bytes that are none.
                Err(e) if e.kind == ErrorKind::TooLarge => {
                    warn!(version, error = %e, "a snapshot is too large");
                    Ok(Some(Bytes::new()))
                }
                Err(e) => Err(LogError::from(e)),
            }
        };
        let records = async {
            match more {
                0 => Ok((window::read(self.store, version, 1).await?, CATCH_UP_WINDOW)),
                more => window::first(self.store, version, more + 1).await,
            }
        };
        let (snapshot, (records, next_window)) = try_join(snapshot, records).await?;
        Ok(Looked {
            snapshot,
            records,
            next_window,
        })
    }

    fn judge(
        &mut self,
        version: Version,
        Looked {
            snapshot,
            records: Window { mut records, read },
            next_window,
        }: Looked,
    ) -> Result<Found, LogError> {
        let Some(bytes) = snapshot else {
            return Ok(Found::Gone);
        };
        let manifest = match Manifest::from_snapshot(Arc::clone(self.stream), &bytes, version) {
            Ok(manifest) => manifest,
            Err(e) => {
                warn!(version, error = %e, "an unusable snapshot is ignored");
                // Another build's is not ours to remove.
                if !matches!(e, FormatError::UnknownFormat { .. }) {
                    self.unusable.push(version);
                }
                return Ok(Found::Unusable);
            }
        };
        if manifest.genesis() != self.genesis {
            // Log and snapshots go on from what it was.
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
            warn!(version, reason, "a snapshot is not of this log: ignored");
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

/// What in the log speaks against a snapshot. When snapshot and next record agree on another hash
/// of the record between them, it is that record which is wrong.
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

pub(crate) async fn list_snapshots(store: &dyn Store) -> Result<Vec<Version>, StoreError> {
    let (mut versions, mut page) = (Vec::new(), None);
    loop {
        let listed = store.list(keys::SNAPSHOTS, page).await?;
        versions.extend(
            listed
                .objects
                .iter()
                .filter_map(|o| keys::snapshot_version(&o.key))
                .filter(|version| *version < NUMBER_MAX),
        );
        page = listed.next;
        if page.is_none() {
            return Ok(versions);
        }
    }
}
