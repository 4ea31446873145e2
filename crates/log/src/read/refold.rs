//! Folds the log a second time, by other reads and from another start than the fold to be checked: an older
//! snapshot, or version 0 (the log is never trimmed).

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::limits::CATCH_UP_WINDOW;
use batchweave_core::manifest::{Folded, Manifest, Segment};
use batchweave_core::stream::StreamConfig;
use batchweave_store::Store;
use bytes::Bytes;
use tracing::debug;

use crate::clock::Clock;
use crate::error::LogError;
use crate::log::{Log, LogOptions};
use crate::read::beginning::beginning;
use crate::read::fitting::get_fitting;
use crate::read::shared_fold::SharedFold;
use crate::read::snapshot_search::{Found, Search, list_snapshots};
use crate::read::window;

/// A second fold, prepared from a first one.
#[derive(Debug, Clone)]
pub(crate) struct Refold {
    pub(super) store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    shared_fold: Option<Arc<dyn SharedFold>>,
    stream: Arc<StreamConfig>,
    genesis: Hash,
    /// The snapshot with which the first fold began.
    pub(super) base: Option<Version>,
    /// Numbers of the segments to keep when they become full on the way.
    kept: BTreeSet<u64>,
}

/// The result of a second fold.
#[derive(Debug)]
pub(crate) struct Refolded {
    pub(crate) manifest: Manifest,
    /// The snapshot with which it began; `None` for version 0.
    pub(crate) base: Option<Version>,
    /// The kept segments that became full on the way.
    pub(crate) segments: Vec<Segment>,
    /// Why it ended before the requested version.
    pub(crate) stopped: Option<LogError>,
}

impl Refold {
    pub(crate) fn for_log(log: &Log) -> Self {
        Self {
            store: Arc::clone(&log.store),
            clock: Arc::clone(&log.clock),
            shared_fold: log.shared_fold.clone().and_then(SharedFold::second),
            stream: Arc::new(log.manifest.stream().clone()),
            genesis: log.manifest.genesis(),
            base: log.base,
            kept: BTreeSet::new(),
        }
    }

    /// Keeps these segments when they become full on the way.
    pub(crate) fn keeping(self, segments: impl Iterator<Item = u64>) -> Self {
        let kept = segments.collect();
        Self { kept, ..self }
    }

    /// Folds all records below `to` from another start than the first fold. Tries starts further and further back
    /// until one fold reaches `to`.
    pub(crate) async fn run(&self, to: Version) -> Result<Refolded, LogError> {
        self.search(Version::MAX, to, |_| true).await
    }

    /// Folds as [`Refold::run`] does until one fold is `good`. Without one, returns the fold that came furthest,
    /// of several the one from the oldest start. Snapshots from version `below` on are not used.
    pub(crate) async fn search(
        &self,
        below: Version,
        to: Version,
        good: impl Fn(&Manifest) -> bool,
    ) -> Result<Refolded, LogError> {
        let mut furthest: Option<Refolded> = None;
        let starts = self.starts(below.min(to)).await?;
        for base in starts.into_iter().map(Some).chain([None]) {
            let Some(found) = self.from(base, to).await? else {
                continue;
            };
            if found.stopped.is_none() && good(&found.manifest) {
                return Ok(found);
            }
            let reached = |r: &Refolded| r.manifest.next_version();
            if furthest
                .as_ref()
                .is_none_or(|f| reached(&found) >= reached(f))
            {
                furthest = Some(found);
            }
        }
        furthest.ok_or_else(|| LogError::NoStream {
            root: self.store.root().to_owned(),
        })
    }

    /// Returns the stored snapshots below a version, newest first: those older than the start of the first fold,
    /// or, without any, all others.
    async fn starts(&self, below: Version) -> Result<Vec<Version>, LogError> {
        let mut versions = list_snapshots(self.store.as_ref()).await?;
        versions.retain(|v| *v < below && Some(*v) != self.base);
        versions.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(base) = self.base.filter(|b| versions.iter().any(|v| v < b)) {
            versions.retain(|v| *v < base);
        }
        Ok(versions)
    }

    /// Folds from one start; `None` when the snapshot cannot be used.
    pub(super) async fn from(
        &self,
        base: Option<Version>,
        to: Version,
    ) -> Result<Option<Refolded>, LogError> {
        let Some(mut log) = self.start(base).await? else {
            return Ok(None);
        };
        let mut segments = Vec::new();
        let stopped = self.fold(&mut log, to, &mut segments).await?;
        Ok(Some(Refolded {
            manifest: log.manifest,
            base,
            segments,
            stopped,
        }))
    }

    /// Returns a log that stands at a snapshot, or at its beginning; `None` when the snapshot cannot be used.
    pub(crate) async fn start(&self, base: Option<Version>) -> Result<Option<Log>, LogError> {
        let manifest = match base {
            Some(version) => match self.snapshot(version).await? {
                Some(manifest) => manifest,
                None => return Ok(None),
            },
            None => self.beginning().await?,
        };
        debug!(from = manifest.next_version(), "folding the log again");
        let options = LogOptions {
            write_snapshots: false,
            clock: Arc::clone(&self.clock),
            shared_fold: self.shared_fold.clone(),
            ..LogOptions::new([0; 32])
        };
        let mut log = Log::new(Arc::clone(&self.store), manifest, &options);
        log.self_checks = false;
        Ok(Some(log))
    }

    /// Folds up to `to`; returns the error at which the fold itself stops, if so.
    async fn fold(
        &self,
        log: &mut Log,
        to: Version,
        segments: &mut Vec<Segment>,
    ) -> Result<Option<LogError>, LogError> {
        let mut size = CATCH_UP_WINDOW;
        let kept = |folded: Folded| {
            let all = folded.segments.into_iter();
            all.filter(|s| self.kept.contains(&s.segment))
        };
        loop {
            let next = log.manifest.next_version();
            let count = to.saturating_sub(next).min(size);
            if count == 0 {
                return Ok(None);
            }
            let found = window::read(self.store.as_ref(), next, count).await?;
            if found.records.is_empty() {
                let (root, key) = (self.store.root().to_owned(), keys::log(next));
                return Err(LogError::Gap {
                    root,
                    key,
                    later: to - 1,
                });
            }
            size = found.next();
            for bytes in found.records {
                match Box::pin(log.fold(&bytes)).await {
                    Ok(folded) => segments.extend(folded.into_iter().flat_map(kept)),
                    Err(e @ LogError::Fold(_)) => return Ok(Some(e)),
                    Err(e) => return Err(e),
                }
            }
        }
    }

    async fn beginning(&self) -> Result<Manifest, LogError> {
        let store = self.store.as_ref();
        let parse = |bytes: &Bytes| {
            let stream = StreamConfig::from_json(bytes, keys::STREAM)?;
            self.check_genesis(Hash::sha256(bytes))?;
            Ok::<_, LogError>((stream, bytes.clone()))
        };
        let (stream, bytes) = get_fitting(store, keys::STREAM, parse).await??;
        beginning(store, stream, &bytes).await
    }

    async fn snapshot(&self, version: Version) -> Result<Option<Manifest>, LogError> {
        let mut search = Search {
            store: &self.store,
            stream: &self.stream,
            genesis: self.genesis,
            unusable: Vec::new(),
        };
        match search.try_own(version).await {
            Ok(Found::Good(start)) => Ok(Some(start.manifest)),
            Ok(_) | Err(LogError::Altered { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn check_genesis(&self, found: Hash) -> Result<(), LogError> {
        if found == self.genesis {
            return Ok(());
        }
        Err(LogError::Altered {
            key: keys::STREAM.to_owned(),
            held: self.genesis,
        })
    }
}
