//! `batchweave reclaim`: what nobody can need any more, who holds back the rest, and with --apply
//! its deletion.

mod render;
mod report;

use batchweave_core::ids::Step;
use batchweave_daemon::Exit;
use batchweave_log::Log;
use batchweave_log::reclaim::{Limits, Plan, ReclaimError, Reclaimer};
use batchweave_store::{ErrorKind, StoreError};

use crate::context::{self, Context};
use crate::error::CliError;
use crate::output::count;
use report::{Applied, ReclaimReport};

const EXAMPLES: &str = "\
Examples:
  batchweave reclaim --store s3://bucket/stream
  batchweave reclaim --store s3://bucket/stream --apply
  batchweave reclaim --store s3://bucket/stream --to 120000 --apply

Without --apply nothing is written: it lists the store and says what would go. The watermark follows
the restart points of the jobs that hold data; with no such job it moves by --to alone. It may be
interrupted, repeated and run beside others at any time. It needs list, put on log/* and delete on
data/*, intents/*, snapshots/*, index/*, jobs/* and inputs/*, and no delete on log/*.";

/// Arguments of `batchweave reclaim`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReclaimArgs {
    /// Publish the watermark and delete; otherwise only say what would be done
    #[arg(long)]
    apply: bool,
    /// Delete at most so many objects; what is left is for the next time
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().max_delete)]
    max_delete: u64,
    /// Give up all steps below this one, by your own decision; never what a job that holds may need
    #[arg(long, value_name = "STEP")]
    to: Option<Step>,
}

pub(crate) async fn run(args: &ReclaimArgs, context: &Context) -> Result<Exit, CliError> {
    let mut log = context::open_log(context.store(false).await?).await?;
    let mut reclaimer = Reclaimer::new();
    let plan = reclaimer.plan(&mut log, args.to).await.map_err(said)?;
    if !args.apply {
        let report = ReclaimReport::new(&log, &plan, None);
        context.out.report(&report, render::text)?;
        return Ok(Exit::Ok);
    }
    let applied = apply(&mut reclaimer, &mut log, &plan, args).await?;
    let stopped = applied.stopped.clone();
    let report = ReclaimReport::new(&log, &plan, Some(&applied));
    context.out.report(&report, render::text)?;
    match (stopped, applied.refused.first()) {
        (Some(error), _) => Err(explained(error, &applied)),
        (None, Some(first)) => Err(explained(first.error.clone(), &applied)),
        (None, None) => Ok(Exit::Ok),
    }
}

async fn apply(
    reclaimer: &mut Reclaimer,
    log: &mut Log,
    plan: &Plan,
    args: &ReclaimArgs,
) -> Result<Applied, CliError> {
    let limits = Limits {
        max_delete: args.max_delete,
    };
    reclaimer.apply(log, plan, limits).await.map_err(said)
}

fn said(error: ReclaimError) -> CliError {
    match error {
        ReclaimError::Log(e) => e.into(),
        ReclaimError::Asked(asked) => CliError::Refused(asked.to_string()),
    }
}

/// A refusal of the store, with what was done all the same.
fn explained(mut error: StoreError, applied: &Applied) -> CliError {
    let gone = count(applied.deleted_in_all().objects, "object");
    let left = count(applied.refused_keys, "object");
    let hint = match error.kind {
        ErrorKind::Denied => "; deleting needs s3:DeleteObject on this prefix",
        _ => "",
    };
    error.detail = format!(
        "{} ({gone} deleted, {left} refused; run the command again to go on){hint}",
        error.detail
    );
    CliError::Store(error)
}

#[cfg(test)]
mod tests {
    use batchweave_store::{Effect, Op};

    use super::*;

    #[test]
    fn a_refusal_says_what_is_done_and_what_to_grant() {
        let denied =
            |kind| StoreError::new(Op::Delete, "s3://b/s/data/x", kind, Effect::DidNot, "403");
        let applied = Applied {
            refused_keys: 7,
            ..Applied::default()
        };
        let error = explained(denied(ErrorKind::Denied), &applied);
        assert_eq!(error.exit(), Exit::StoreUnavailable);
        let text = error.to_string();
        for part in [
            "s3://b/s/data/x",
            "0 objects deleted, 7 objects refused; run the command again",
            "deleting needs s3:DeleteObject on this prefix",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = explained(denied(ErrorKind::Throttled), &applied).to_string();
        assert!(!text.contains("s3:DeleteObject"), "{text}");
    }
}
