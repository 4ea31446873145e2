//! A fold of the whole log from its first record, without snapshots.

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context;
use batchweave_core::drive::MixtureHistory;
use batchweave_core::ids::{Step, Version};
use batchweave_core::keys;
use batchweave_core::manifest::{Folded, Manifest, Segment};
use batchweave_core::proof::{History, LoggedTgb};
use batchweave_log::{AsOf, Log, LogError, LogOptions};
use batchweave_store::{Store, found};
use futures::future::try_join_all;
use serde::Serialize;

use crate::objects::Objects;

/// Number of void entries and records that are listed; all are counted.
const VOIDS_LISTED: usize = 100;
/// Versions after the head that are probed: a record there means that one before it is missing.
const BEHIND_HEAD: u64 = 256;

/// A void entry or record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct VoidAt {
    pub(crate) version: Version,
    /// The entry's number; `None` for a whole record.
    pub(crate) entry: Option<usize>,
    pub(crate) reason: String,
}

/// The facts collected from all records.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) history: History,
    pub(crate) mixtures: MixtureHistory,
    /// Digests by step, from the first of the stream on.
    pub(crate) named: Vec<LoggedTgb>,
    /// The first step of the stream, which is that of the first digest.
    first_step: Step,
    pub(crate) objects: Objects,
    pub(crate) voids: Vec<VoidAt>,
    pub(crate) void_count: u64,
    /// The current run of records with void entries, and the first such run of two or more.
    row: VoidRun,
    pub(crate) void_row: Option<VoidRun>,
}

/// Consecutive records with void entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VoidRun {
    pub(crate) first: Version,
    pub(crate) records: u64,
}

/// A fold from the beginning of the log.
pub(crate) struct Folding {
    store: Arc<dyn Store>,
    view: Arc<AsOf>,
    log: Log,
    pub(crate) facts: Facts,
}

impl Folding {
    /// Starts with the state before version 0.
    pub(crate) async fn begin(store: Arc<dyn Store>) -> Result<Self, CliError> {
        Self::begin_with(store, &context::read_only()).await
    }

    /// The same, of a log with these options.
    pub(crate) async fn begin_with(
        store: Arc<dyn Store>,
        options: &LogOptions,
    ) -> Result<Self, CliError> {
        let view = AsOf::new(Arc::clone(&store), 0);
        let log = Log::open(Arc::clone(&view) as _, options).await?;
        let facts = Facts {
            first_step: log.manifest().stream().first_step(),
            ..Facts::default()
        };
        Ok(Self {
            store,
            view,
            log,
            facts,
        })
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        self.log.manifest()
    }

    /// Folds one window of the records below version `end`. Returns the segments that became full, and
    /// whether the window was the last.
    pub(crate) async fn window(&mut self, end: Version) -> Result<(Vec<Segment>, bool), CliError> {
        self.view.show_until(end);
        let mut version = self.manifest().next_version();
        let (folded, at_end) = self.log.catch_up_window().await?;
        let mut segments = Vec::new();
        for mut one in folded {
            self.facts.note(version, &one);
            segments.append(&mut one.segments);
            version += 1;
        }
        self.facts.objects.prune(self.log.manifest().watermark());
        Ok((segments, at_end))
    }

    /// Folds all records to the head; calls `show` with the version after each window.
    pub(crate) async fn follow(&mut self, mut show: impl FnMut(Version)) -> Result<(), CliError> {
        while !self.window(Version::MAX).await?.1 {
            show(self.manifest().next_version());
        }
        Ok(())
    }

    /// Checks that no record exists after the head, where it would be unreachable.
    pub(crate) async fn nothing_behind(&self) -> Result<(), CliError> {
        let next = self.manifest().next_version();
        let probe = |version| async move {
            let record = found(self.store.head(&keys::log(version)).await)?;
            Ok::<_, CliError>(record.map(|_| version))
        };
        let probes = try_join_all((next + 1..next + BEHIND_HEAD).map(probe)).await?;
        let Some(later) = probes.into_iter().flatten().next() else {
            return Ok(());
        };
        // A record written since then is there now.
        if probe(next).await?.is_some() {
            return Ok(());
        }
        let root = self.store.root().to_owned();
        let key = keys::log(next);
        Err(LogError::Gap { root, key, later }.into())
    }
}

impl Facts {
    fn note(&mut self, version: Version, folded: &Folded) {
        self.history.note(version, folded);
        self.mixtures.note(version, folded);
        self.objects.note(folded);
        let digests = folded.placed.iter().map(|entry| LoggedTgb {
            digest: entry.tgb.digest,
            version: entry.version,
        });
        self.named.extend(digests);
        if let Some(reason) = &folded.void {
            self.void(version, None, reason.to_string());
        }
        let void = folded.entries.iter().any(Result::is_err);
        self.row = match (void, self.row) {
            (false, _) => VoidRun::default(),
            (true, VoidRun { first, records }) => VoidRun {
                first: if records == 0 { version } else { first },
                records: records + 1,
            },
        };
        let same = |row: &VoidRun| row.first == self.row.first;
        if self.row.records > 1 && self.void_row.as_ref().is_none_or(same) {
            self.void_row = Some(self.row);
        }
        for (index, verdict) in folded.entries.iter().enumerate() {
            if let Err(reason) = verdict {
                self.void(version, Some(index), reason.to_string());
            }
        }
    }

    fn void(&mut self, version: Version, entry: Option<usize>, reason: String) {
        self.void_count += 1;
        if self.voids.len() < VOIDS_LISTED {
            self.voids.push(VoidAt {
                version,
                entry,
                reason,
            });
        }
    }

    /// Returns the producer and digest of a step.
    pub(crate) fn named(&self, step: Step) -> Option<LoggedTgb> {
        let at = step.checked_sub(self.first_step)?;
        self.named.get(usize::try_from(at).ok()?).copied()
    }
}
