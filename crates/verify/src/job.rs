//! The proofs of a run that `verify --job` gives: of a job, and of the attempt of a parent stream with whose checkpoint a
//! fork began.

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::job::{JobSelector, incarnation};
use batchweave_console::output::joined;
use batchweave_core::ids::Step;
use batchweave_core::manifest::entry::Inherited;
use batchweave_store::Store;

use crate::fold::Folding;
use crate::listing::JobListing;
use crate::mend::Mender;
use crate::proof::{Chain, Proof, Proven};
use crate::report::RunReport;
use crate::training::TrainingReport;

/// The parts of a proof beside that of what ranks received.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Asked {
    /// Only the steps before this one.
    pub(crate) to: Option<Step>,
    /// Store missing ledgers first.
    pub(crate) mend: bool,
    /// Also prove what ranks reported.
    pub(crate) trained: bool,
}

/// Folds the whole log of `store`.
pub(crate) async fn fold(store: &Arc<dyn Store>) -> Result<Folding, CliError> {
    let mut folding = Folding::begin(Arc::clone(store)).await?;
    let mut bar = crate::log_bar(store).await?;
    folding.follow(|next| bar.reach(next)).await?;
    bar.end();
    Ok(folding)
}

/// Proves the run of a job.
pub(crate) async fn prove(
    store: &Arc<dyn Store>,
    folding: &Folding,
    job: &JobSelector,
    asked: Asked,
) -> Result<Proven, CliError> {
    let root = store.root();
    let record = folding
        .facts
        .history
        .job(&job.name, job.opened)
        .ok_or_else(|| absent(root, folding, job))?;
    if record.attempts.is_empty() {
        return Err(CliError::Absent(format!(
            "job {}@{} of {root} has no attempt yet, so there is nothing to prove",
            record.name, record.opened
        )));
    }
    let head = folding.manifest().next_step();
    let mut listed = JobListing::list(store, record, head).await?;
    let mut mended = None;
    if asked.mend {
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
    report.training = asked.trained.then(TrainingReport::default);
    let chain = Chain {
        last: record.attempts.last(),
        to: asked.to,
        continued: false,
    };
    let proof = Proof {
        store,
        folding,
        record,
        listed: &listed,
        chain,
    };
    proof.reported(report).await
}

/// Proves the run of the attempt from whose checkpoint a fork continued at its step.
pub(crate) async fn prove_inherited(
    store: &Arc<dyn Store>,
    folding: &Folding,
    inherited: &Inherited,
    trained: bool,
) -> Result<Proven, CliError> {
    let Inherited {
        attempt, id, step, ..
    } = *inherited;
    let root = store.root();
    let found = folding.facts.history.attempt(id, attempt);
    let (record, last) = found.ok_or_else(|| {
        CliError::Unsound(format!(
            "{root} has no attempt {attempt} with id {id}, from whose checkpoint the fork continues"
        ))
    })?;
    let listed = JobListing::list(store, record, folding.manifest().next_step()).await?;
    let mut report = RunReport::new(root, record, &listed, folding.manifest().watermark());
    report.training = trained.then(TrainingReport::default);
    let chain = Chain {
        last: Some(last),
        to: Some(step),
        continued: true,
    };
    let proof = Proof {
        store,
        folding,
        record,
        listed: &listed,
        chain,
    };
    proof.reported(report).await
}

pub(crate) fn absent(root: &str, folding: &Folding, job: &JobSelector) -> CliError {
    let known = folding.facts.history.jobs();
    let known = joined(known.map(|j| incarnation(&j.name, j.opened)), "");
    let known = match known.as_str() {
        "" => "it never had a job".to_owned(),
        known => format!("it had {known}"),
    };
    CliError::Absent(format!("no job {job} in {root}: {known}"))
}
