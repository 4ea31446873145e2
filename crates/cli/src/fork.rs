//! `batchweave fork`: makes a stream that goes on where another one stood at a step.

mod inputs;
mod render;

use batchweave_console::CliError;
use batchweave_console::context::{self, Context};
use batchweave_core::ids::{ProducerName, Seq, StageName, Step, StreamId, Version};
use batchweave_core::manifest::state::ProducerState;
use batchweave_daemon::{Exit, timestamp};
use batchweave_log::{ForkError, ForkPlan, Made, make_fork, plan_fork};
use batchweave_store::root_url;
use serde::Serialize;

use self::inputs::InputFiles;

const EXAMPLES: &str = "\
Examples:
  batchweave fork s3://bucket/pretrain --at-step 40000 s3://bucket/anneal --dry-run
  batchweave fork s3://bucket/pretrain --at-step 40000 s3://bucket/anneal
  batchweave fork file:///data/a --at-step 0 file:///data/b --fresh

The fork is a stream of its own, whose first step is N. Its producers go on in their inputs exactly where
the parent's stood at that step, with the same configuration except for store.url: batches of the parent
that their place lies before are made once more, compared and dropped. The parent is only read, and may be
reclaimed or deleted at any time. A command that was interrupted is run again.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ForkArgs {
    /// Root of the stream to continue
    #[arg(value_name = "PARENT")]
    parent: String,
    /// First step of the fork: one that the parent has, or its next one
    #[arg(long, value_name = "N")]
    at_step: Step,
    /// Root of the fork: an empty place
    #[arg(value_name = "CHILD")]
    child: String,
    /// Show what the fork would have; writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Begin the input anew, with no producer of the parent
    #[arg(long)]
    fresh: bool,
}

/// A producer at the beginning of the fork.
#[derive(Debug, Serialize)]
struct Carried {
    producer: ProducerName,
    /// Its next batch, whose step is the first of its own in the fork.
    next: Seq,
    /// Batches of the parent before it that are made once more.
    made_again: Seq,
    /// Files of its input list.
    files: usize,
}

#[derive(Debug, Serialize)]
struct LeftBehindReport {
    /// Mixtures that begin later for all producers.
    mixtures: Vec<u64>,
    /// Stages that begin later for all producers.
    stages: Vec<StageName>,
    /// Producers that have finished, and finish again.
    finished: Vec<ProducerName>,
    quarantines: Vec<(Step, Step)>,
    sealed: bool,
    jobs: usize,
}

#[derive(Debug, Serialize)]
struct ForkReport {
    root: String,
    /// The id of the fork; `None` with --dry-run.
    stream: Option<StreamId>,
    /// `planned`, `created` or `existed`.
    outcome: &'static str,
    parent: String,
    parent_stream: StreamId,
    step: Step,
    /// The version of the parent behind which all steps below the fork are assigned.
    version: Option<Version>,
    /// The next step of the parent.
    head: Step,
    fresh: bool,
    producers: Vec<Carried>,
    /// The last mixture that is carried; 0 is that of the configuration.
    mixture: u64,
    /// The stages that are carried, by name.
    stages: Vec<StageName>,
    left_behind: LeftBehindReport,
    inputs: InputFiles,
    warnings: Vec<String>,
}

pub(crate) async fn run(args: &ForkArgs, context: &Context) -> Result<Exit, CliError> {
    let parent = context.at(Some(&args.parent))?;
    if root_url(&args.parent) == root_url(&args.child) {
        return Err(CliError::Usage(format!(
            "the fork and its parent have the same root, {}: name another, empty one for the fork",
            args.child
        )));
    }
    let mut global = context.global().clone();
    global.store = Some(args.child.clone());
    let child = Context::new(global);
    let source = parent.store(false).await?;
    let plan = plan_fork(&source, &context::read_only(), args.at_step, args.fresh)
        .await
        .map_err(refused)?;
    let (root, outcome, stream) = if args.dry_run {
        (child.url()?, "planned", None)
    } else {
        let store = child.store(true).await?;
        batchweave_store::probe(store.as_ref(), rand::random(), 0).await?;
        let id = StreamId::from_random(rand::random());
        let made = make_fork(&store, &plan, id, timestamp::now());
        let (outcome, stream) = match made.await.map_err(refused)? {
            Made::Created(stream) => ("created", stream),
            Made::Existed(stream) => ("existed", stream),
        };
        (store.root().to_owned(), outcome, Some(stream.stream_id))
    };
    let inputs = InputFiles::check(&plan.files, &context.store_options()).await;
    let mut report = report(args, plan, root, stream, inputs);
    report.outcome = outcome;
    context.done(&report, render::text)
}

fn report(
    args: &ForkArgs,
    plan: ForkPlan,
    root: String,
    stream: Option<StreamId>,
    inputs: InputFiles,
) -> ForkReport {
    let files = |name: &ProducerName| plan.files.get(name).map_or(0, Vec::len);
    let carried = |(name, p): (&ProducerName, &ProducerState)| Carried {
        producer: name.clone(),
        next: p.next_seq,
        made_again: p.next_seq - p.made_from(),
        files: files(name),
    };
    let mut warnings = inputs.warnings();
    if plan.state.producers.values().any(inputs::reads_inbox) {
        warnings.push(
            "producers read an inbox, which the fork shares: with inbox.delete the parent's producers delete files that the \
             fork may still need"
                .to_owned(),
        );
    }
    let stages = plan.state.stages.all.values();
    ForkReport {
        root,
        stream,
        outcome: "planned",
        parent: plan.parent.root.clone(),
        parent_stream: plan.parent.stream,
        step: plan.parent.step,
        version: plan.parent.version,
        head: plan.head,
        fresh: args.fresh,
        producers: plan.state.producers.iter().map(carried).collect(),
        mixture: plan.state.mixture.id,
        stages: stages.map(|stage| stage.name.clone()).collect(),
        left_behind: LeftBehindReport {
            mixtures: plan.left.mixtures,
            stages: plan.left.stages,
            finished: plan.left.finished,
            quarantines: plan.left.quarantines,
            sealed: plan.left.sealed,
            jobs: plan.left.jobs,
        },
        inputs,
        warnings,
    }
}

fn refused(why: ForkError) -> CliError {
    match why {
        ForkError::Log(why) => why.into(),
        ForkError::NotAssigned { .. } | ForkError::BelowParent { .. } => {
            CliError::Absent(why.to_string())
        }
        ForkError::Differ { .. } => CliError::Unsound(why.to_string()),
        ForkError::Refused { .. } | ForkError::RootInUse { .. } => {
            CliError::Refused(why.to_string())
        }
    }
}
