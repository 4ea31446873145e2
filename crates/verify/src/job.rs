//! The proof of a run: the ledgers of its lineage against the digests in the log.

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::job::{JobSelector, incarnation};
use batchweave_console::output::joined;
use batchweave_core::ids::{AttemptNo, Step};
use batchweave_core::proof::{
    AttemptRecord, Contradiction, JobRecord, Ledger, LedgerPlace, Leg, LegProof, LegTraining,
    LoggedTgb, ProvenLeg,
};
use batchweave_store::{Store, StoreError};
use futures::{StreamExt, TryStreamExt};

use crate::bar::Bar;
use crate::fold::Folding;
use crate::listing::JobListing;
use crate::mend::Mender;
use crate::report::{LegReport, RunReport};
use crate::training::TrainingReport;

/// Ledgers read at a time.
const READS: usize = 16;

/// Proves the run of a job, up to step `to` if given; with `mend`, stores missing ledgers first; with `trained`,
/// also proves what ranks reported.
pub(crate) async fn prove(
    store: &Arc<dyn Store>,
    job: &JobSelector,
    to: Option<Step>,
    (mend, trained): (bool, bool),
) -> Result<RunReport, CliError> {
    let mut folding = Folding::begin(Arc::clone(store)).await?;
    let mut bar = crate::log_bar(store).await?;
    folding.follow(|next| bar.reach(next)).await?;
    bar.end();
    let root = store.root();
    let record = folding
        .facts
        .history
        .job(&job.name, job.opened)
        .ok_or_else(|| absent(root, &folding, job))?;
    if record.attempts.is_empty() {
        return Err(CliError::Absent(format!(
            "job {}@{} of {root} has no attempt yet, so there is nothing to prove",
            record.name, record.opened
        )));
    }
    let head = folding.manifest().next_step();
    let mut listed = JobListing::list(store, record, head).await?;
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
            node: format!("mend-{:08x}", rand::random::<u32>()),
        };
        mended = Some(mender.mend(&legs).await?);
        listed = JobListing::list(store, record, head).await?;
    }
    let mut report = RunReport::new(root, record, &listed, folding.manifest().watermark());
    report.mended = mended;
    report.training = trained.then(TrainingReport::default);
    let proof = Proof {
        store,
        folding: &folding,
        record,
        listed: &listed,
    };
    match proof.run(to, &mut report).await {
        Ok(()) => {}
        Err(ProofError::Contradiction(why)) => {
            report.verdict = "contradiction";
            report.contradiction = Some(why.to_string());
        }
        Err(ProofError::Cli(why)) => return Err(why),
    }
    Ok(report)
}

fn absent(root: &str, folding: &Folding, job: &JobSelector) -> CliError {
    let known = folding.facts.history.jobs();
    let known = joined(known.map(|j| incarnation(&j.name, j.opened)), "");
    let known = match known.as_str() {
        "" => "it never had a job".to_owned(),
        known => format!("it had {known}"),
    };
    CliError::Absent(format!("no job {job} in {root}: {known}"))
}

/// Ends a proof early: a contradiction, or a read error.
enum ProofError {
    Contradiction(Contradiction),
    Cli(CliError),
}

impl<E: Into<Contradiction>> From<E> for ProofError {
    fn from(why: E) -> Self {
        Self::Contradiction(why.into())
    }
}

struct Proof<'p> {
    store: &'p Arc<dyn Store>,
    folding: &'p Folding,
    record: &'p JobRecord,
    listed: &'p JobListing,
}

impl Proof<'_> {
    async fn run(&self, to: Option<Step>, report: &mut RunReport) -> Result<(), ProofError> {
        let attempts = self.record.attempts.len() as u64;
        if let Some((_, strange)) = self.listed.ledgers.range(attempts..).next() {
            let key = strange
                .first()
                .map(|(_, key)| key.clone())
                .unwrap_or_default();
            return Err(Contradiction::UnknownAttempt { key }.into());
        }
        let mut legs = self.record.lineage().map_err(Contradiction::from)?;
        // Each restart was from a checkpoint.
        report.trained = legs.iter().filter_map(|leg| leg.to).max();
        legs.retain(|leg| to.is_none_or(|to| leg.from < to));
        if let (Some(last), Some(to)) = (legs.last_mut(), to) {
            last.to = Some(last.to.map_or(to, |end| end.min(to)));
        }
        let attempt = |leg: &Leg| self.record.attempt(leg.attempt);
        let found: Vec<_> = legs
            .iter()
            .filter_map(|leg| Some((*leg, attempt(leg)?)))
            .collect();
        let lineage = found.iter().map(|(leg, a)| LegReport::new(leg, a));
        report.lineage = lineage.collect();
        let all: usize = legs.iter().map(|leg| self.ledgers(leg.attempt).len()).sum();
        let mut bar = Bar::new("ledgers", all as u64);
        for (n, (leg, attempt)) in found.into_iter().enumerate() {
            let mut training = report.training.is_some().then(|| LegTraining::new(attempt));
            let proven = self.leg(leg, attempt, training.as_mut(), &mut bar).await;
            bar.end();
            let proven = proven?;
            if let (Some(report), Some(training)) = (&mut report.training, training) {
                let below = self.marked(&proven.leg, attempt).min(proven.end);
                report.note(leg.attempt, training.finish(leg.from, below));
            }
            report.note(n, proven);
        }
        report.conclude(self.listed);
        if let Some(training) = &mut report.training {
            training.conclude(self.record.start);
        }
        Ok(())
    }

    /// Returns the step below which the ranks of a leg must have reported: that at which the next attempt continued,
    /// or the newest attempt's last mark.
    fn marked(&self, leg: &Leg, attempt: &AttemptRecord) -> Step {
        let newest = self.record.attempts.last().map(|a| a.state.number);
        if newest != Some(leg.attempt) {
            return leg.to.unwrap_or(leg.from);
        }
        let marks = self.listed.complete_marks(attempt).into_iter();
        marks.max().unwrap_or(leg.from)
    }

    fn ledgers(&self, attempt: AttemptNo) -> &[(Step, String)] {
        self.listed.ledgers.get(&attempt).map_or(&[], Vec::as_slice)
    }

    async fn leg(
        &self,
        leg: Leg,
        attempt: &AttemptRecord,
        mut training: Option<&mut LegTraining<'_>>,
        bar: &mut Bar,
    ) -> Result<ProvenLeg, ProofError> {
        let manifest = self.folding.manifest();
        let log = |step: Step| -> Option<LoggedTgb> { self.folding.facts.named(step) };
        let mut proof = LegProof::new(attempt, leg, manifest.stream().slices);
        let keys = self.ledgers(leg.attempt);
        let nexts = keys.iter().skip(1).map(|(first, _)| Some(*first));
        let pairs = keys.iter().zip(nexts.chain([None]));
        let place = LedgerPlace {
            stream: manifest.stream_id(),
            job: &self.record.name,
            opened: self.record.opened,
            attempt: leg.attempt,
        };
        let reads = pairs.map(|((_, key), next)| async move {
            let read = batchweave_log::get_fitting(self.store.as_ref(), key, |bytes| {
                let ledger = Ledger::from_json(bytes, key, &place);
                let fits = |ledger: &Ledger| ledger.id == attempt.state.id;
                let fit = ledger.as_ref().is_ok_and(fits);
                let read = Box::new((bytes.len(), ledger));
                if fit { Ok(read) } else { Err(read) }
            });
            // The proof names what the last of several reads has that does not fit.
            let (Ok(read) | Err(read)) = read.await?;
            let (bytes, ledger) = *read;
            Ok::<_, StoreError>((key, next, bytes, ledger))
        });
        let mut reads = futures::stream::iter(reads).buffered(READS);
        while let Some((key, next, bytes, ledger)) = reads.try_next().await.map_err(cli)? {
            bar.add(1, bytes as u64);
            let ledger = ledger.map_err(Contradiction::Ledger)?;
            if let Some(training) = &mut training {
                training.add(key, &ledger.states)?;
            }
            proof.add(key, ledger)?;
            if let Some(next) = next {
                proof.settle(next, &log)?;
            }
        }
        if leg.to.is_none() {
            for dp_rank in 0..attempt.state.dp_size {
                proof.note_position(dp_rank, self.listed.shown_of(leg.attempt, dp_rank));
            }
        }
        let closed = self.record.closed.map(|_| 0);
        Ok(proof.finish(closed.or(manifest.end()), &log)?)
    }
}

fn cli(why: impl Into<CliError>) -> ProofError {
    ProofError::Cli(why.into())
}
