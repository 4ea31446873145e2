//! The losses that the ranks of a run reported: read step by step over the attempts of its lineage.
//!
//! Steps of abandoned attempts, behind the checkpoint with which the next one went on, do not count.

use std::ops::Range;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context;
use batchweave_console::job::JobSelector;
use batchweave_core::ids::{AttemptNo, Step, StreamId, Version};
use batchweave_core::keys;
use batchweave_core::proof::{AttemptRecord, JobRecord, Leg};
use batchweave_core::values::{CoordinateStep, MergedValues, ValuesObject};
use batchweave_store::{Store, found};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};

use crate::fold::Folding;
use crate::job::{absent, fold};

/// Objects read at a time; each may have 32 MiB.
const READS: usize = 4;

/// The part of a run that one attempt trained, and its objects of losses.
#[derive(Debug)]
struct LossLeg {
    attempt: AttemptRecord,
    steps: Range<Step>,
    /// First step, last step and key, in order.
    objects: Vec<(Step, Step, String)>,
}

impl LossLeg {
    /// Returns the keys of the objects with values of these steps, each with the first step of the next object.
    fn objects_with(&self, steps: &Range<Step>) -> Vec<(String, Step)> {
        let inside =
            |(first, last, _): &&(Step, Step, String)| *first < steps.end && *last >= steps.start;
        let objects: Vec<_> = self.objects.iter().filter(inside).collect();
        let nexts = objects.iter().skip(1).map(|(first, ..)| *first);
        let nexts = nexts.chain([Step::MAX]);
        let keys = objects.iter().map(|(.., key)| key.clone());
        keys.zip(nexts).collect()
    }

    fn read_steps(&self, steps: &Range<Step>) -> u64 {
        let own = both(steps, &self.steps);
        let skipped = self.attempt.skipped(own.clone());
        let skipped: u64 = skipped.iter().map(|(first, end)| end - first).sum();
        own.end.saturating_sub(own.start) - skipped
    }
}

/// The losses of a job's run.
pub struct RunLosses {
    store: Arc<dyn Store>,
    stream: StreamId,
    record: JobRecord,
    legs: Vec<LossLeg>,
}

/// The values of all coordinates of a step; those without values are left out.
#[derive(Debug)]
pub struct StepLosses {
    pub step: Step,
    pub attempt: AttemptNo,
    /// Coordinates that read the step.
    pub dp_size: u32,
    pub coordinates: Vec<CoordinateStep>,
}

impl RunLosses {
    /// Reads the log, and lists the losses of the job's newest lineage.
    pub fn open<'a>(
        store: &'a Arc<dyn Store>,
        job: &'a JobSelector,
    ) -> BoxFuture<'a, Result<Self, CliError>> {
        Box::pin(async move {
            let folding = fold(store).await?;
            let record = folding.facts.history.job(&job.name, job.opened);
            let record = record
                .ok_or_else(|| absent(store.root(), &folding, job))?
                .clone();
            let lineage = record.lineage();
            let lineage = lineage.map_err(|why| CliError::Unsound(why.to_string()))?;
            Self::of_lineage(store, &folding, &record, &lineage).await
        })
    }

    /// Lists the losses of one lineage of a job.
    pub(crate) async fn of_lineage(
        store: &Arc<dyn Store>,
        folding: &Folding,
        record: &JobRecord,
        lineage: &[Leg],
    ) -> Result<Self, CliError> {
        let head = folding.manifest().next_step();
        Ok(Self {
            store: Arc::clone(store),
            stream: folding.manifest().stream_id(),
            record: record.clone(),
            legs: legs(store, record, lineage, head).await?,
        })
    }

    /// Returns the version that opened the job.
    pub fn opened(&self) -> Version {
        self.record.opened
    }

    /// Returns the steps of the run, up to the last one of which a loss is stored.
    pub fn steps(&self) -> Range<Step> {
        let first = self.legs.first().map_or(0, |leg| leg.steps.start);
        let lasts = self.legs.iter().flat_map(|leg| &leg.objects);
        let end = lasts.map(|(_, last, _)| last + 1).max();
        let end = end.unwrap_or(first);
        first..end.min(self.legs.last().map_or(end, |leg| leg.steps.end))
    }

    /// Returns the number of pairs of step and coordinate in a range: quarantined steps are passed over.
    pub fn read_pairs(&self, steps: &Range<Step>) -> u64 {
        let pairs = |leg: &LossLeg| leg.read_steps(steps) * u64::from(leg.attempt.state.dp_size);
        self.legs.iter().map(pairs).sum()
    }

    /// Returns the number of steps in a range that the run's ranks read: quarantined ones are passed over.
    pub fn read_steps(&self, steps: &Range<Step>) -> u64 {
        self.legs.iter().map(|leg| leg.read_steps(steps)).sum()
    }

    /// Calls `each` with the values of each step in a range that has any, in the order of steps.
    pub fn read<'a>(
        &'a self,
        steps: Range<Step>,
        mut each: impl FnMut(StepLosses) -> Result<(), CliError> + Send + 'a,
    ) -> BoxFuture<'a, Result<(), CliError>> {
        Box::pin(async move {
            for leg in &self.legs {
                let own = both(&steps, &leg.steps);
                if !own.is_empty() {
                    self.leg(leg, own, &mut each).await?;
                }
            }
            Ok(())
        })
    }

    async fn leg(
        &self,
        leg: &LossLeg,
        steps: Range<Step>,
        each: &mut (impl FnMut(StepLosses) -> Result<(), CliError> + Send),
    ) -> Result<(), CliError> {
        let reads = leg.objects_with(&steps).into_iter();
        let reads = reads.map(|(key, next)| async move {
            let object = self.object(&key, &leg.attempt).await?;
            Ok::<_, CliError>((object, next))
        });
        let mut merged = MergedValues::default();
        let mut reads = futures::stream::iter(reads).buffered(READS);
        while let Some((object, next)) = reads.try_next().await? {
            if let Some(object) = object {
                merged.add(object, &steps);
            }
            let complete = merged.take_below(next);
            for of_step in complete.chunk_by(|a, b| a.step == b.step) {
                each(StepLosses {
                    step: of_step[0].step,
                    attempt: leg.attempt.state.number,
                    dp_size: leg.attempt.state.dp_size,
                    coordinates: of_step.to_vec(),
                })?;
            }
        }
        Ok(())
    }

    /// Reads an object; `None` if reclamation has deleted it since it was listed.
    async fn object(
        &self,
        key: &str,
        attempt: &AttemptRecord,
    ) -> Result<Option<ValuesObject>, CliError> {
        let id = attempt.state.id;
        let read = batchweave_log::get_fitting(self.store.as_ref(), key, |bytes| {
            ValuesObject::decode(bytes, key, self.stream, id)
        });
        let Some(read) = found(read.await)? else {
            return Ok(None);
        };
        let object = read.map_err(|why| CliError::Unsound(why.to_string()))?;
        let dp_size = attempt.state.dp_size;
        match object.blocks.iter().find(|block| block.dp_rank >= dp_size) {
            None => Ok(Some(object)),
            Some(strange) => Err(CliError::Unsound(format!(
                "{key} has losses of coordinate {}, and attempt {} has {dp_size}",
                strange.dp_rank, attempt.state.number
            ))),
        }
    }
}

async fn legs(
    store: &Arc<dyn Store>,
    record: &JobRecord,
    lineage: &[Leg],
    head: Step,
) -> Result<Vec<LossLeg>, CliError> {
    let mut legs = Vec::new();
    for leg in lineage {
        let Some(attempt) = record.attempt(leg.attempt) else {
            continue;
        };
        let folder = keys::values_of(&record.name, record.opened, leg.attempt);
        let listed = context::list(store.as_ref(), &folder).await?.into_iter();
        let objects = listed.filter_map(|object| {
            let named = keys::parse_values(&object.key)?;
            Some((named.first, named.last, object.key))
        });
        let mut objects: Vec<_> = objects.collect();
        objects.sort();
        legs.push(LossLeg {
            attempt: attempt.clone(),
            steps: leg.from..leg.to.unwrap_or(head),
            objects,
        });
    }
    Ok(legs)
}

fn both(a: &Range<Step>, b: &Range<Step>) -> Range<Step> {
    a.start.max(b.start)..a.end.min(b.end)
}
