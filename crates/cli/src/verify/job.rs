//! The proof of a run: the ledgers of its lineage against the digests in the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::{AttemptNo, Step};
use batchweave_core::keys;
use batchweave_core::proof::{
    AttemptRecord, Contradiction, JobRecord, Ledger, LedgerPlace, Leg, LegProof, LoggedTgb,
    ProvenLeg,
};
use batchweave_store::Store;
use futures::{StreamExt, TryStreamExt};

use super::JobArg;
use super::bar::Bar;
use super::fold::Folding;
use super::mend::Mender;
use super::report::{LegReport, Report};
use crate::context;
use crate::error::CliError;

/// Ledgers read at a time.
const READS: usize = 16;

/// Names of the objects in a job's folder.
#[derive(Default)]
pub(super) struct Listed {
    /// First step and key of each ledger, by attempt.
    pub(super) ledgers: BTreeMap<AttemptNo, Vec<(Step, String)>>,
    /// Single coordinates' marks and what all coordinates have marked, by attempt.
    marks: BTreeMap<AttemptNo, BTreeMap<Step, Vec<Option<u32>>>>,
    /// First and last coordinate, and the step below which they have received all, by attempt.
    progress: BTreeMap<AttemptNo, Vec<(u32, u32, Step)>>,
    pub(super) reached: BTreeMap<AttemptNo, Step>,
}

/// Proves the run of a job, up to `to` where given.
pub(crate) async fn prove(
    store: &Arc<dyn Store>,
    job: &JobArg,
    to: Option<Step>,
    mend: bool,
) -> Result<Report, CliError> {
    let mut folding = Folding::begin(Arc::clone(store)).await?;
    let mut bar = super::log_bar(store).await?;
    let mut shown = 0;
    folding
        .follow(|next| bar.add(next - std::mem::replace(&mut shown, next), 0))
        .await?;
    bar.end();
    let root = store.root();
    let record = folding.facts.history.job(&job.name, job.opened);
    let record = record.ok_or_else(|| absent(root, &folding, job))?;
    if record.attempts.is_empty() {
        return Err(CliError::Absent(format!(
            "job {}@{} of {root} has no attempt: nobody has read anything for it",
            record.name, record.opened
        )));
    }
    let mut listed = Listed::list(store, record).await?;
    let mut mended = None;
    if mend {
        let legs = record
            .lineage()
            .map_err(|why| CliError::Unsound(why.to_string()))?;
        let mender = Mender {
            store,
            stream: folding.manifest().stream(),
            record,
            listed: &listed,
            head: folding.manifest().next_step(),
            node: format!("mend-{:08x}", rand::random::<u32>()),
        };
        mended = Some(mender.mend(&legs).await?);
        listed = Listed::list(store, record).await?;
    }
    let mut report = Report::new(root, record, &listed, folding.manifest().watermark());
    report.mended = mended;
    let proof = Proof {
        store,
        folding: &folding,
        record,
        listed: &listed,
    };
    if let Err(failed) = proof.run(to, &mut report).await {
        match failed {
            Failed::Contradiction(why) => {
                report.verdict = "contradiction";
                report.contradiction = Some(why.to_string());
            }
            Failed::Cli(why) => return Err(why),
        }
    }
    Ok(report)
}

fn absent(root: &str, folding: &Folding, job: &JobArg) -> CliError {
    let known = folding.facts.history.jobs();
    let known: Vec<_> = known.map(|j| format!("{}@{}", j.name, j.opened)).collect();
    let known = if known.is_empty() {
        "it has had none".to_owned()
    } else {
        format!("it has had {}", known.join(", "))
    };
    let opened = job.opened.map_or(String::new(), |v| format!("@{v}"));
    CliError::Absent(format!("no job {}{opened} in {root}: {known}", job.name))
}

/// A proof ends early by what speaks against it, or because something can't be read.
enum Failed {
    Contradiction(Contradiction),
    Cli(CliError),
}

impl<E: Into<Contradiction>> From<E> for Failed {
    fn from(why: E) -> Self {
        Self::Contradiction(why.into())
    }
}

struct Proof<'p> {
    store: &'p Arc<dyn Store>,
    folding: &'p Folding,
    record: &'p JobRecord,
    listed: &'p Listed,
}

impl Proof<'_> {
    async fn run(&self, to: Option<Step>, report: &mut Report) -> Result<(), Failed> {
        let attempts = self.record.attempts.len() as u64;
        if let Some((_, strange)) = self.listed.ledgers.range(attempts..).next() {
            let key = strange.first().map(|(_, key)| key.clone());
            let key = key.unwrap_or_default();
            return Err(Contradiction::UnknownAttempt { key }.into());
        }
        let mut legs = self.record.lineage().map_err(Contradiction::from)?;
        legs.retain(|leg| to.is_none_or(|to| leg.from < to));
        if let (Some(last), Some(to)) = (legs.last_mut(), to) {
            last.to = Some(last.to.map_or(to, |end| end.min(to)));
        }
        let attempt = |leg: &Leg| self.record.attempt(leg.attempt);
        let found: Vec<_> = legs
            .iter()
            .filter_map(|leg| Some((*leg, attempt(leg)?)))
            .collect();
        report.lineage = found
            .iter()
            .map(|(leg, a)| LegReport::new(leg, a))
            .collect();
        let all: usize = legs.iter().map(|leg| self.ledgers(leg.attempt).len()).sum();
        let mut bar = Bar::new("ledgers", all as u64);
        for (n, (leg, attempt)) in found.into_iter().enumerate() {
            let proven = self.leg(leg, attempt, &mut bar).await;
            bar.end();
            report.note(n, proven?);
        }
        report.conclude(self.listed);
        Ok(())
    }

    fn ledgers(&self, attempt: AttemptNo) -> &[(Step, String)] {
        self.listed.ledgers.get(&attempt).map_or(&[], Vec::as_slice)
    }

    async fn leg(
        &self,
        leg: Leg,
        attempt: &AttemptRecord,
        bar: &mut Bar,
    ) -> Result<ProvenLeg, Failed> {
        let manifest = self.folding.manifest();
        let log = |step: Step| -> Option<LoggedTgb> { self.folding.facts.named(step) };
        let mut proof = LegProof::new(attempt, leg, manifest.stream().slices);
        let keys = self.ledgers(leg.attempt);
        let nexts = keys.iter().skip(1).map(|(first, _)| Some(*first));
        let reads = keys.iter().zip(nexts.chain([None]));
        let reads = reads.map(|((_, key), next)| async move {
            let bytes = batchweave_log::get_intact(self.store.as_ref(), key).await;
            bytes.map(|bytes| (key, next, bytes))
        });
        let mut reads = futures::stream::iter(reads).buffered(READS);
        while let Some((key, next, bytes)) = reads.try_next().await.map_err(cli)? {
            bar.add(1, bytes.len() as u64);
            let place = LedgerPlace {
                stream: manifest.stream_id(),
                job: &self.record.name,
                opened: self.record.opened,
                attempt: leg.attempt,
            };
            let ledger = Ledger::from_json(&bytes, key, &place);
            proof.add(key, ledger.map_err(Contradiction::Ledger)?)?;
            if let Some(next) = next {
                proof.settle(next, &log)?;
            }
        }
        if leg.to.is_none() {
            self.note_shown(attempt, &mut proof);
        }
        let closed = self.record.closed.map(|_| 0);
        Ok(proof.finish(closed.or(manifest.end()), &log)?)
    }

    /// How far the coordinates of the newest attempt came by its marks and progress.
    fn note_shown(&self, attempt: &AttemptRecord, proof: &mut LegProof<'_>) {
        let head = self.folding.manifest().next_step();
        for (first, last, step) in self.listed.claims(attempt, head) {
            (first..=last).for_each(|coordinate| proof.shown(coordinate, step));
        }
    }
}

fn cli(why: impl Into<CliError>) -> Failed {
    Failed::Cli(why.into())
}

impl Listed {
    async fn list(store: &Arc<dyn Store>, record: &JobRecord) -> Result<Self, CliError> {
        let folder = keys::job_folder(&record.name, record.opened);
        let mut listed = Self::default();
        for object in context::list(store.as_ref(), &folder).await? {
            let key = object.key;
            if let Some(ledger) = keys::parse_ledger(&key) {
                listed.reach(ledger.owner.attempt, ledger.first);
                let all = listed.ledgers.entry(ledger.owner.attempt).or_default();
                all.push((ledger.first, key));
            } else if let Some(mark) = keys::parse_mark(&key) {
                listed.reach(mark.owner.attempt, mark.step);
                let all = listed.marks.entry(mark.owner.attempt).or_default();
                all.entry(mark.step).or_default().push(mark.coordinate);
            } else if let Some(progress) = keys::parse_progress(&key) {
                listed.reach(progress.owner.attempt, progress.step);
                let all = listed.progress.entry(progress.owner.attempt).or_default();
                all.push((progress.first, progress.last, progress.step));
            }
        }
        for all in listed.ledgers.values_mut() {
            all.sort();
        }
        Ok(listed)
    }

    /// The highest steps of an attempt's progress and marks.
    pub(super) fn shown(&self, attempt: AttemptNo) -> (Option<Step>, Option<Step>) {
        let progress = self.progress.get(&attempt).into_iter().flatten();
        let marks = self.marks.get(&attempt).and_then(|m| m.last_key_value());
        (progress.map(|p| p.2).max(), marks.map(|(step, _)| *step))
    }

    /// First and last coordinate of each mark and progress of an attempt, and its step. Names that say
    /// more than can be are nobody's.
    fn claims(
        &self,
        attempt: &AttemptRecord,
        head: Step,
    ) -> impl Iterator<Item = (u32, u32, Step)> {
        let (number, dp_size) = (attempt.state.number, attempt.state.dp_size);
        let marks = self.marks.get(&number).into_iter().flatten();
        let marks = marks.flat_map(|(step, by)| by.iter().map(move |of| (*of, *step)));
        let marks = marks.map(move |(of, step)| match of {
            Some(one) => (one, one, step),
            None => (0, dp_size.saturating_sub(1), step),
        });
        let progress = self.progress.get(&number).into_iter().flatten();
        let all = marks.chain(progress.copied());
        all.filter(move |(_, last, step)| *step <= head && *last < dp_size)
    }

    /// How far a coordinate came by marks and progress; 0 where there are none.
    pub(super) fn shown_of(&self, attempt: &AttemptRecord, dp_rank: u32, head: Step) -> Step {
        let own = self.claims(attempt, head);
        let own = own.filter(|(first, last, _)| (*first..=*last).contains(&dp_rank));
        own.map(|(_, _, step)| step).max().unwrap_or_default()
    }

    fn reach(&mut self, attempt: AttemptNo, step: Step) {
        let reached = self.reached.entry(attempt).or_default();
        *reached = step.max(*reached);
    }

    pub(super) fn complete_marks(&self, attempt: &AttemptRecord) -> Vec<Step> {
        let marks = self.marks.get(&attempt.state.number).into_iter().flatten();
        let complete = |by: &Vec<Option<u32>>| {
            by.contains(&None) || by.len() >= attempt.state.dp_size as usize
        };
        let complete = marks.filter(|(_, by)| complete(by));
        complete.map(|(step, _)| *step).collect()
    }
}
