//! `batchweave stage`: shows, plans and sets the stages of a stream: other shapes of its batches from a batch on.

mod begin;
mod configured;
mod render;
mod show;
mod show_report;

use std::path::PathBuf;

use batchweave_core::ids::{RequestId, Seq, Step, Version};
use batchweave_core::manifest::entry::Stage;
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_daemon::Exit;
use serde::Serialize;

use self::begin::{Begins, ProducerBegin};
use self::configured::WantedStage;
use crate::admin;
use crate::mixture::Begin;
use batchweave_console::CliError;
use batchweave_console::context::Context;

const EXAMPLES: &str = "\
Examples:
  batchweave stage show                                                    the stages, and where they begin
  batchweave stage plan long --config tokens-0.toml --from-step 40000      what `set` would write
  batchweave stage set long --config tokens-0.toml --after 256

The configuration is that of any producer of the stream: its [[stages]] has the shape. Add the stage to
the configurations of all producers and restart them before: one that lacks it holds before its first
batch of the stage, and says which lines to add. Batches that were made already from there on are made
again. Each token is given once, in the old shape or the new. A mistaken stage is replaced by setting
another one at the same batches, before the first of them is committed.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StageArgs {
    #[command(subcommand)]
    verb: StageVerb,
}

#[derive(Debug, clap::Subcommand)]
enum StageVerb {
    /// Show the stages, and the first batch of each producer in them
    Show,
    /// Show what `set` would write; writes nothing
    Plan(ChangeArgs),
    /// Begin a stage with a coming batch of each producer
    Set(SetArgs),
}

#[derive(Debug, clap::Args)]
struct ChangeArgs {
    /// The name of the stage in [[stages]]
    #[arg(value_name = "NAME")]
    name: String,
    /// The configuration of a producer of the stream, which has the stage
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Batches of each producer before the stage, counted from its last commit
    #[arg(long, value_name = "BATCHES", default_value_t = 64)]
    after: Seq,
    /// Begin with this step of a stream of lanes, as long as no lane finishes before
    #[arg(long, value_name = "STEP", conflicts_with = "after")]
    from_step: Option<Step>,
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    #[command(flatten)]
    change: ChangeArgs,
    /// An id of your own (32 hexadecimal digits): repeating the command with it does nothing
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

/// A stage that was planned or set.
#[derive(Debug, Serialize)]
struct ChangeReport {
    root: String,
    /// The number of the stage; `None` when the request was done before.
    id: Option<u64>,
    /// The version that set it; `None` for a plan, or when the request was done before.
    version: Option<Version>,
    planned: bool,
    stage: WantedStage,
    /// The first step that can have the new shape, under `arrival`.
    earliest_step: Option<Step>,
    producers: Vec<ProducerBegin>,
}

pub(crate) async fn run(args: &StageArgs, context: &Context) -> Result<Exit, CliError> {
    match &args.verb {
        StageVerb::Show => show::run(context).await,
        StageVerb::Plan(args) => plan(args, context).await,
        StageVerb::Set(args) => set(args, context).await,
    }
}

async fn plan(args: &ChangeArgs, context: &Context) -> Result<Exit, CliError> {
    let wanted = configured::stage(&args.config, &args.name).await?;
    let log = context.log().await?;
    let m = log.manifest();
    wanted.check(m)?;
    let begins = args.begin().producers(m, wanted.has_weights())?;
    let mut report = report(log.store().root(), wanted, Some(begins), m);
    report.id = Some(m.stages().newest() + 1);
    report.planned = true;
    context.done(&report, render::change)
}

async fn set(args: &SetArgs, context: &Context) -> Result<Exit, CliError> {
    let wanted = configured::stage(&args.change.config, &args.change.name).await?;
    let mut log = context.log().await?;
    let request = admin::request(args.request, &mut log);
    let mut made = None;
    let version = admin::commit(&mut log, "stage", |m| {
        // By the state of now the same request would be another entry, or a refused one.
        if is_done(m, request, &wanted) {
            return Ok(None);
        }
        wanted.check(m)?;
        let begins = args.change.begin().producers(m, wanted.has_weights())?;
        let entry = wanted.entry(m, request, &begins)?;
        let id = entry.id;
        made = Some((id, report("", wanted.clone(), Some(begins), m)));
        Ok(Some(Entry::Stage(entry)))
    })
    .await?;
    let mut done = report(log.store().root(), wanted, None, log.manifest());
    if let Some((id, made)) = made.filter(|_| version.is_some()) {
        (done.id, done.version) = (Some(id), version);
        (done.producers, done.earliest_step) = (made.producers, made.earliest_step);
    }
    context.done(&done, render::change)
}

fn report(root: &str, stage: WantedStage, begins: Option<Begins>, m: &Manifest) -> ChangeReport {
    let producers = begins.map(|begins| begins.0).unwrap_or_default();
    let distance = |p: &ProducerBegin| p.from.saturating_sub(p.committed);
    let nearest = producers.iter().map(distance).min();
    let is_arrival = m.first_seqs_from(m.next_step()).is_none();
    ChangeReport {
        root: root.to_owned(),
        id: None,
        version: None,
        planned: false,
        stage,
        earliest_step: nearest.filter(|_| is_arrival).map(|n| m.next_step() + n),
        producers,
    }
}

/// Returns whether the log has an entry of this request.
fn is_done(m: &Manifest, request: RequestId, wanted: &WantedStage) -> bool {
    let empty = Stage {
        request,
        ..wanted.empty_entry()
    };
    m.validate(&Entry::Stage(empty)) == Ok(Validity::Repeat)
}

impl ChangeArgs {
    fn begin(&self) -> Begin {
        match self.from_step {
            Some(step) => Begin::AtStep(step),
            None => Begin::After(self.after),
        }
    }
}
