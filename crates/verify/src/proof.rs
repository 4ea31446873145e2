//! The proof of the attempts of a job: their ledgers against the digests in the log.

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_core::ids::{AttemptNo, Step};
use batchweave_core::manifest::entry::Inherited;
use batchweave_core::proof::{
    AttemptRecord, Contradiction, JobRecord, Ledger, LedgerPlace, Leg, LegProof, LegTraining,
    LoggedTgb, ProvenLeg,
};
use batchweave_store::{Store, StoreError};
use futures::{StreamExt, TryStreamExt};

use crate::bar::Bar;
use crate::fold::Folding;
use crate::listing::JobListing;
use crate::report::{LegReport, RunReport};

/// Ledgers read at a time.
const READS: usize = 16;

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

/// The attempts that a proof is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain<'p> {
    /// The last one; the others are those from whose checkpoints it came.
    pub(crate) last: Option<&'p AttemptRecord>,
    /// The end of the steps to prove.
    pub(crate) to: Option<Step>,
    /// Whether a fork continued from a checkpoint at `to`.
    pub(crate) continued: bool,
}

/// The proof of one job of one log.
pub(crate) struct Proof<'p> {
    pub(crate) store: &'p Arc<dyn Store>,
    pub(crate) folding: &'p Folding,
    pub(crate) record: &'p JobRecord,
    pub(crate) listed: &'p JobListing,
    pub(crate) chain: Chain<'p>,
}

/// A proof, and the checkpoint of the parent stream with which its lineage begins.
pub(crate) struct Proven {
    pub(crate) report: RunReport,
    pub(crate) inherited: Option<Inherited>,
}

impl Proof<'_> {
    /// Fills the report, and finds the checkpoint with which the lineage begins.
    pub(crate) async fn reported(&self, mut report: RunReport) -> Result<Proven, CliError> {
        let inherited = match self.run(&mut report).await {
            Ok(inherited) => inherited,
            Err(ProofError::Contradiction(why)) => {
                report.verdict = "contradiction";
                report.contradiction = Some(why.to_string());
                None
            }
            Err(ProofError::Cli(why)) => return Err(why),
        };
        Ok(Proven { report, inherited })
    }

    async fn run(&self, report: &mut RunReport) -> Result<Option<Inherited>, ProofError> {
        let attempts = self.record.attempts.len() as u64;
        if let Some((_, strange)) = self.listed.ledgers.range(attempts..).next() {
            let key = strange
                .first()
                .map(|(_, key)| key.clone())
                .unwrap_or_default();
            return Err(Contradiction::UnknownAttempt { key }.into());
        }
        let to = self.chain.to;
        let legs = self.record.lineage_of(self.chain.last);
        let mut legs = legs.map_err(Contradiction::from)?;
        // Each restart was from a checkpoint, as is a fork's first attempt.
        let continued = to.filter(|_| self.chain.continued);
        report.trained = legs.iter().filter_map(|leg| leg.to).max().max(continued);
        let first = legs
            .first()
            .and_then(|leg| self.record.attempt(leg.attempt));
        let inherited = first.and_then(|attempt| attempt.inherited);
        report.from = first.map_or(report.from, |attempt| attempt.state.start);
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
            training.conclude(report.from);
        }
        Ok(inherited)
    }

    /// Returns the step below which the ranks of a leg must have reported: that at which the next attempt continued,
    /// or the newest attempt's last mark.
    fn marked(&self, leg: &Leg, attempt: &AttemptRecord) -> Step {
        let last = self.chain.last.map(|a| a.state.number);
        if self.chain.continued || last != Some(leg.attempt) {
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
