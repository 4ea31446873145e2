//! `batchweave reclaim`: shows the data that is no longer needed and the jobs that retain the rest; with
//! --apply, deletes the former.

mod render;
mod report;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::count;
use batchweave_core::ids::Step;
use batchweave_core::retention::reclaim::KEEP_LOSSES;
use batchweave_daemon::Exit;
use batchweave_log::reclaim::{Limits, ReclaimError, Reclaimer};
use batchweave_store::{ErrorKind, StoreError};

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
    /// Keep the losses that ranks reported of this many steps below the watermark
    #[arg(long, value_name = "STEPS", default_value_t = KEEP_LOSSES)]
    keep_losses: u64,
    /// Give up all steps below this one; never those that a job with --holds may need
    #[arg(long, value_name = "STEP")]
    to: Option<Step>,
}

pub(crate) async fn run(args: &ReclaimArgs, context: &Context) -> Result<Exit, CliError> {
    let mut log = context.log().await?;
    let mut reclaimer = Reclaimer::keeping(args.keep_losses);
    let plan = reclaimer.plan(&mut log, args.to).await.map_err(failed)?;
    if !args.apply {
        return context.done(&ReclaimReport::new(&log, &plan, None), render::text);
    }
    let max_delete = args.max_delete;
    let applied = reclaimer
        .apply(&mut log, &plan, Limits { max_delete })
        .await
        .map_err(failed)?;
    let report = ReclaimReport::new(&log, &plan, Some(&applied));
    context.out.report(&report, render::text)?;
    // The report is printed in any case; a pass that ended early or left objects undeleted fails after it.
    let refused = applied.refused.first().map(|first| &first.error);
    match applied.stopped.as_ref().or(refused) {
        Some(error) => Err(with_progress(error.clone(), &applied)),
        None => Ok(Exit::Ok),
    }
}

/// Returns the error of a pass that failed as a whole.
fn failed(error: ReclaimError) -> CliError {
    match error {
        ReclaimError::Log(e) => e.into(),
        ReclaimError::Asked(asked) => CliError::Refused(asked.to_string()),
    }
}

/// Adds the result so far to the store's refusal.
fn with_progress(mut error: StoreError, applied: &Applied) -> CliError {
    let gone = count(applied.deleted_in_all().objects, "object");
    let left = count(applied.refused_keys, "object");
    let so_far = format!("{gone} deleted, {left} refused; run the command again to go on");
    error.detail = format!("{} ({so_far})", error.detail);
    if error.kind == ErrorKind::Denied {
        error.detail += "; deleting needs s3:DeleteObject on this prefix";
    }
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
