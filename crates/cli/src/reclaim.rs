//! `batchweave reclaim`: shows the data that is no longer needed and the jobs that retain the rest; with
//! --apply, deletes the former.

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

Without --apply nothing is written: it lists the store and shows what would be deleted. The watermark
follows the restart points of the jobs that hold data; without such a job only --to moves it. It may be
interrupted, repeated and run beside others at any time. It needs list, put on log/* and delete on
data/*, intents/*, snapshots/*, index/*, jobs/* and inputs/*, and no delete on log/*.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReclaimArgs {
    /// Publish the watermark and delete; otherwise only show what would be done
    #[arg(long)]
    apply: bool,
    /// Delete at most this many objects; the next run deletes the rest
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().max_delete)]
    max_delete: u64,
    /// Give up all steps below this one; never those that a job with --holds may need
    #[arg(long, value_name = "STEP")]
    to: Option<Step>,
}

pub(crate) async fn run(args: &ReclaimArgs, context: &Context) -> Result<Exit, CliError> {
    let mut log = context::open_log(context.store(false).await?).await?;
    let mut reclaimer = Reclaimer::new();
    let plan = reclaimer
        .plan(&mut log, args.to)
        .await
        .map_err(reclaim_error)?;
    if !args.apply {
        let report = ReclaimReport::new(&log, &plan, None);
        context.out.report(&report, render::text)?;
        return Ok(Exit::Ok);
    }
    let applied = apply(&mut reclaimer, &mut log, &plan, args).await?;
    let stopped = applied.stopped.clone();
    let report = ReclaimReport::new(&log, &plan, Some(&applied));
    context.out.report(&report, render::text)?;
    // The report is printed in any case; a pass that ended early or left objects undeleted fails after it.
    match (stopped, applied.refused.first()) {
        (Some(error), _) => Err(with_progress(error, &applied)),
        (None, Some(first)) => Err(with_progress(first.error.clone(), &applied)),
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
    reclaimer
        .apply(log, plan, limits)
        .await
        .map_err(reclaim_error)
}

fn reclaim_error(error: ReclaimError) -> CliError {
    match error {
        ReclaimError::Log(e) => e.into(),
        ReclaimError::Asked(asked) => CliError::Refused(asked.to_string()),
    }
}

/// Adds the result so far to the store's refusal.
fn with_progress(mut error: StoreError, applied: &Applied) -> CliError {
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
        let error = with_progress(denied(ErrorKind::Denied), &applied);
        assert_eq!(error.exit(), Exit::StoreUnavailable);
        let text = error.to_string();
        for part in [
            "s3://b/s/data/x",
            "0 objects deleted, 7 objects refused; run the command again",
            "deleting needs s3:DeleteObject on this prefix",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = with_progress(denied(ErrorKind::Throttled), &applied).to_string();
        assert!(!text.contains("s3:DeleteObject"), "{text}");
    }
}
