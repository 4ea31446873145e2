//! The end of a run: a last pass of reclamation, as `batchweave reclaim --apply` makes it, and the proof of
//! `batchweave verify --job`.

use batchweave_core::ids::{JobName, Step};
use batchweave_log::Log;
use batchweave_log::reclaim::{Class, Limits, Reclaimer};

use super::DemoError;
use super::setup::JOB;
use batchweave_verify::prove_job;

/// The state of the store after the run.
#[derive(Debug)]
pub(crate) struct Aftermath {
    /// Reclaimed steps, by the daemon or the last pass.
    pub(crate) reclaimed: Step,
    /// Number of committed steps.
    pub(crate) head: Step,
    /// Bytes of remaining data.
    pub(crate) kept_bytes: u64,
    /// The first step that the ledgers do not prove.
    pub(crate) proved_to: Step,
    /// Steps that all data coordinates received, once and in order.
    pub(crate) proved_steps: u64,
    /// The contradiction, or why the run is not proved.
    pub(crate) contradiction: Option<String>,
}

/// Reclaims the rest, then proves the run; the data of most steps is gone by then.
pub(super) async fn inspect(log: &mut Log) -> Result<Aftermath, DemoError> {
    let failed = |e: &dyn std::fmt::Display| DemoError::Store(e.to_string());
    let mut reclaimer = Reclaimer::new();
    let pass = reclaimer
        .pass(log, Limits::default())
        .await
        .map_err(|e| failed(&e))?;
    let name: JobName = JOB.parse().map_err(|e| failed(&e))?;
    let proof = prove_job(log.store(), name).await.map_err(|e| failed(&e))?;
    let data = pass.totals.get(&Class::Data).copied().unwrap_or_default();
    Ok(Aftermath {
        reclaimed: pass.watermark,
        head: pass.head,
        kept_bytes: data.needed.bytes + data.uncommitted.bytes,
        proved_to: proof.to,
        proved_steps: proof.steps,
        contradiction: proof.fault,
    })
}
