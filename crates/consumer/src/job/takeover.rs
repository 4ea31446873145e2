//! An attempt whose id the client drew itself does not end one that runs on this node: a second shell, a notebook
//! or a forgotten script would end the training. An id that a launcher or the caller gave supersedes at once,
//! since a restart must not wait for ranks that hang. Pure.

use std::collections::BTreeSet;

use batchweave_core::ids::Step;
use batchweave_wire::{ErrorName, Fault};

use super::membership::{AttemptRequest, Member};
use crate::mistakes::{self, Mistake};

/// Process ids that a message lists.
const PIDS_MAX: usize = 8;

/// A rank whose session is not over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunningRank<'m> {
    pub(crate) member: &'m Member,
    /// Its process; `None` for one of another pid namespace.
    pub(crate) pid: Option<u32>,
    /// The step that it needs next, as it reported.
    pub(crate) next_step: Step,
}

/// Returns the fault of a rank of process `own` whose attempt gives way to another one of its job.
pub(crate) fn refuse<'m>(
    request: &AttemptRequest,
    running: impl Iterator<Item = RunningRank<'m>>,
    own: Option<u32>,
) -> Option<Fault> {
    if !request.yields || mistakes::is(Mistake::DrawnTakesOver) {
        return None;
    }
    let others: Vec<RunningRank<'m>> = running
        .filter(|rank| {
            let Member {
                job, opened, id, ..
            } = rank.member;
            *job == request.job && *opened == request.opened && *id != request.id
        })
        .collect();
    let newest = others.iter().map(|rank| rank.member.attempt).max()?;
    let ranks: Vec<&RunningRank<'m>> = others
        .iter()
        .filter(|rank| rank.member.attempt == newest)
        .collect();
    let first = ranks.first()?;
    let step = ranks.iter().map(|rank| rank.next_step).min()?;
    let ranks_here = match ranks.len() {
        1 => "1 rank".to_owned(),
        more => format!("{more} ranks"),
    };
    let message = format!(
        "attempt {newest} ({}) of job {} runs here with {ranks_here}, at step {step}: {}; a new attempt would end it",
        first.member.id,
        request.job,
        processes(&ranks, own),
    );
    Some(Fault::new(ErrorName::AttemptRunning, message))
}

fn processes(ranks: &[&RunningRank<'_>], own: Option<u32>) -> String {
    let pids: BTreeSet<u32> = ranks.iter().filter_map(|rank| rank.pid).collect();
    if pids.is_empty() {
        return "in processes of another container".to_owned();
    }
    let name = |pid: &u32| match own {
        Some(own) if own == *pid => format!("{pid} (this process: close its reader)"),
        _ => pid.to_string(),
    };
    let listed: Vec<String> = pids.iter().take(PIDS_MAX).map(name).collect();
    let more = match pids.len() - listed.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if pids.len() == 1 {
        "process"
    } else {
        "processes"
    };
    format!("{noun} {}{more}", listed.join(", "))
}

#[cfg(test)]
mod tests;
