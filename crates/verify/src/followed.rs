//! A run that is followed while it goes on: its log, the states of its steps and their losses, for `batchweave mixture
//! drive`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context;
use batchweave_console::job::JobSelector;
use batchweave_core::drive::MixtureHistory;
use batchweave_core::ids::{AttemptNo, Step};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::proof::{
    AttemptRecord, JobRecord, Ledger, LedgerPlace, Leg, LegTraining, ReportedStates,
};
use batchweave_log::LogOptions;
use batchweave_store::{Store, found};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};

use crate::fold::Folding;
use crate::job::{absent, fold};
use crate::losses::RunLosses;

/// Ledgers read at a time.
const READS: usize = 16;

/// The log of a stream and one job of it.
pub struct FollowedRun {
    store: Arc<dyn Store>,
    job: JobSelector,
    folding: Folding,
    /// The states in ledgers that were read: a ledger never changes. Only those of the attempts asked for last are kept.
    states: BTreeMap<AttemptNo, BTreeMap<String, Vec<ReportedStates>>>,
}

/// A coordinate that has no state of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingState {
    pub attempt: AttemptNo,
    pub dp_rank: u32,
    /// Its first steps without a state.
    pub steps: Range<Step>,
    /// The number of coordinates without a state of some step.
    pub coordinates: u64,
}

impl FollowedRun {
    /// Reads the log up to its head.
    pub fn open<'a>(
        store: &'a Arc<dyn Store>,
        job: &'a JobSelector,
    ) -> BoxFuture<'a, Result<Self, CliError>> {
        Self::open_for(store, |_| Ok(job.clone()))
    }

    /// Reads the log up to its head, for the job that its mixtures name.
    pub fn open_for<'a>(
        store: &'a Arc<dyn Store>,
        job: impl FnOnce(&MixtureHistory) -> Result<JobSelector, CliError> + Send + 'a,
    ) -> BoxFuture<'a, Result<Self, CliError>> {
        Box::pin(async move {
            let folding = fold(store).await?;
            let run = Self {
                store: Arc::clone(store),
                job: job(&folding.facts.mixtures)?,
                folding,
                states: BTreeMap::new(),
            };
            run.record()?;
            Ok(run)
        })
    }

    /// Reads the log up to its head by these options, without a bar.
    pub fn open_with(
        store: Arc<dyn Store>,
        job: JobSelector,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<Self, CliError>> {
        Box::pin(async move {
            let mut folding = Folding::begin_with(Arc::clone(&store), &options).await?;
            folding.follow(|_| ()).await?;
            let run = Self {
                store,
                job,
                folding,
                states: BTreeMap::new(),
            };
            run.record()?;
            Ok(run)
        })
    }

    /// Returns the root of the stream.
    pub fn root(&self) -> &str {
        self.store.root()
    }

    /// Reads the records that were added since.
    pub fn refresh(&mut self) -> BoxFuture<'_, Result<(), CliError>> {
        Box::pin(self.folding.follow(|_| ()))
    }

    /// Returns the state of the log.
    pub fn manifest(&self) -> &Manifest {
        self.folding.manifest()
    }

    /// Returns the mixtures of the log.
    pub fn mixtures(&self) -> &MixtureHistory {
        &self.folding.facts.mixtures
    }

    /// Returns the job with its attempts.
    pub fn record(&self) -> Result<&JobRecord, CliError> {
        let history = &self.folding.facts.history;
        let record = history.job(&self.job.name, self.job.opened);
        record.ok_or_else(|| absent(self.store.root(), &self.folding, &self.job))
    }

    /// Lists the losses of a lineage of the job.
    pub fn losses<'a>(&'a self, legs: &'a [Leg]) -> BoxFuture<'a, Result<RunLosses, CliError>> {
        Box::pin(async move {
            RunLosses::of_lineage(&self.store, &self.folding, self.record()?, legs).await
        })
    }

    /// Returns the first coordinate that has no state of one of `steps` in a lineage, where there is one.
    pub fn missing<'a>(
        &'a mut self,
        legs: &'a [Leg],
        steps: Range<Step>,
    ) -> BoxFuture<'a, Result<Option<MissingState>, CliError>> {
        Box::pin(async move {
            let inside = |leg: &&Leg| {
                leg.from < steps.end && leg.to.is_none_or(|to| to > steps.start && to > leg.from)
            };
            let legs: Vec<Leg> = legs.iter().filter(inside).copied().collect();
            self.states
                .retain(|attempt, _| legs.iter().any(|leg| leg.attempt == *attempt));
            for leg in legs {
                self.read_states(leg.attempt, steps.end).await?;
                let found = self.missing_in(&leg, &steps)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        })
    }

    fn missing_in(&self, leg: &Leg, steps: &Range<Step>) -> Result<Option<MissingState>, CliError> {
        let Some(attempt) = self.record()?.attempt(leg.attempt) else {
            return Ok(None);
        };
        let mut training = LegTraining::new(attempt);
        for (key, states) in self.states.get(&leg.attempt).into_iter().flatten() {
            let added = training.add(key, states);
            added.map_err(|why| CliError::Unsound(why.to_string()))?;
        }
        let end = leg.to.map_or(steps.end, |to| to.min(steps.end));
        let states = training.finish(steps.start.max(leg.from), end);
        let mut ranks: Vec<u32> = states.missing.iter().map(|one| one.dp_rank).collect();
        ranks.dedup();
        Ok(states.missing.first().map(|first| MissingState {
            attempt: leg.attempt,
            dp_rank: first.dp_rank,
            steps: first.steps.clone(),
            coordinates: ranks.len() as u64,
        }))
    }

    /// Reads the ledgers of an attempt that begin below `end` and were not read before.
    async fn read_states(&mut self, attempt: AttemptNo, end: Step) -> Result<(), CliError> {
        let record = self.record()?;
        let Some(of) = record.attempt(attempt) else {
            return Ok(());
        };
        let folder = keys::ledgers(&record.name, record.opened, attempt);
        let known = self.states.get(&attempt);
        let is_new = |key: &String| {
            let begins = keys::parse_ledger(key).is_some_and(|ledger| ledger.first < end);
            begins && known.is_none_or(|known| !known.contains_key(key))
        };
        let listed = context::list(self.store.as_ref(), &folder)
            .await?
            .into_iter();
        let new: Vec<String> = listed.map(|object| object.key).filter(is_new).collect();
        let place = LedgerPlace {
            stream: self.manifest().stream_id(),
            job: &record.name,
            opened: record.opened,
            attempt,
        };
        let reads = new.into_iter().map(|key| self.ledger(key, &place, of));
        let reads = futures::stream::iter(reads).buffered(READS);
        let read: Vec<_> = reads.try_collect().await?;
        self.states.entry(attempt).or_default().extend(read);
        Ok(())
    }

    async fn ledger(
        &self,
        key: String,
        place: &LedgerPlace<'_>,
        attempt: &AttemptRecord,
    ) -> Result<(String, Vec<ReportedStates>), CliError> {
        let id = attempt.state.id;
        let read = batchweave_log::get_fitting(self.store.as_ref(), &key, |bytes| {
            Ledger::from_json(bytes, &key, place).map_err(|why| why.to_string())
        });
        let Some(read) = found(read.await)? else {
            return Ok((key, Vec::new()));
        };
        let ledger = read.map_err(CliError::Unsound)?;
        if ledger.id != id {
            return Err(CliError::Unsound(format!(
                "{key} belongs to another attempt than {}, of the log",
                attempt.state.number
            )));
        }
        Ok((key, ledger.states))
    }
}
