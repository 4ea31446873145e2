//! `batchweave mixture`: shows, plans and sets the weights of a stream's sources; `drive` sets them by the loss, `explain` says
//! why.

mod begin;
mod change;
mod drive;
mod explain;
mod given;
mod render;
mod show;
mod show_report;

use std::collections::BTreeMap;

use batchweave_core::ids::{ProducerName, RequestId, Seq, Step, Version};
use batchweave_core::manifest::entry::Mixture;
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_core::order::named_weights;
use batchweave_daemon::Exit;
use serde::Serialize;

pub(crate) use self::begin::Begin;
use self::change::{Change, Wanted};
pub(crate) use self::change::{needed_mixtures, read_spec};
use self::drive::DriveArgs;
use self::explain::ExplainArgs;
use crate::admin;
use batchweave_console::CliError;
use batchweave_console::context::Context;

const EXAMPLES: &str = "\
Examples:
  batchweave mixture show                                       the mixtures, and the shares really given
  batchweave mixture plan web=0.6 code=0.3 math=0.1             what `set` would change, and from which batch on
  batchweave mixture set web=0.6 code=0.3 math=0.1 --after 256
  batchweave mixture drive --job llm --rule odm --every 500 --dry-run --svg shares.svg
  batchweave mixture drive --job llm --rule odm --every 500     set them by the losses that ranks report, until Ctrl-C
  batchweave mixture explain 12                                 why mixture 12 was set

Each producer changes with the batch that is --after batches behind its last committed one; batches
that it made beyond that are made again. No document is lost or given twice. Weights count only
against each other: 6 and 3 are the same as 0.6 and 0.3. A weight of 0 leaves a source out.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MixtureArgs {
    #[command(subcommand)]
    verb: MixtureVerb,
}

#[derive(Debug, clap::Subcommand)]
enum MixtureVerb {
    /// Show the mixtures of each producer, and the shares that were really given
    Show(ShowArgs),
    /// Show what `set` would change; writes nothing
    Plan(ChangeArgs),
    /// Set the weights of the sources from a coming batch on
    Set(SetArgs),
    /// Follow the losses that ranks report, and set the weights by them
    Drive(DriveArgs),
    /// Show why `drive` set a mixture, and compute it again
    Explain(ExplainArgs),
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Count what the last steps of this number were made of
    #[arg(long, value_name = "N", default_value_t = 256)]
    steps: Step,
}

#[derive(Debug, clap::Args)]
struct ChangeArgs {
    /// Sources and their weights; each source of the producers
    #[arg(value_name = "SOURCE=WEIGHT", required = true, value_parser = weight)]
    weights: Vec<(String, f64)>,
    /// Batches of each producer that still have the old weights, counted from its last commit
    #[arg(long, value_name = "BATCHES", default_value_t = 64)]
    after: Seq,
    /// Begin with this step of a stream of lanes, as long as no lane finishes before
    #[arg(long, value_name = "STEP", conflicts_with = "after")]
    from_step: Option<Step>,
    /// Change these producers only; may be given several times
    #[arg(long = "producer", value_name = "NAME")]
    producers: Vec<ProducerName>,
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    #[command(flatten)]
    change: ChangeArgs,
    /// An id of your own (32 hexadecimal digits): repeating the command with it does nothing
    #[arg(long, value_name = "ID")]
    request: Option<RequestId>,
}

fn weight(text: &str) -> Result<(String, f64), String> {
    let (name, number) = text
        .split_once('=')
        .ok_or("write SOURCE=WEIGHT, as web=0.6")?;
    let number = number
        .parse()
        .map_err(|_| format!("{number:?} is not a number"))?;
    Ok((name.to_owned(), number))
}

/// A change that was planned or made.
#[derive(Debug, Serialize)]
struct ChangeReport {
    root: String,
    /// The number of the mixture; `None` when the request was done before.
    id: Option<u64>,
    /// The version that set it; `None` for a plan, or when the request was done before.
    version: Option<Version>,
    planned: bool,
    #[serde(flatten)]
    change: Option<Change>,
}

pub(crate) async fn run(args: &MixtureArgs, context: &Context) -> Result<Exit, CliError> {
    match &args.verb {
        MixtureVerb::Show(args) => show::run(args.steps, context).await,
        MixtureVerb::Plan(args) => plan(args, context).await,
        MixtureVerb::Set(args) => set(args, context).await,
        MixtureVerb::Drive(args) => drive::run(args, context).await,
        MixtureVerb::Explain(args) => explain::run(args, context).await,
    }
}

async fn plan(args: &ChangeArgs, context: &Context) -> Result<Exit, CliError> {
    let wanted = args.wanted()?;
    let log = context.log().await?;
    let m = log.manifest();
    let report = ChangeReport {
        root: log.store().root().to_owned(),
        id: Some(m.mixture().id + 1),
        version: None,
        planned: true,
        change: Some(wanted.change(m)?),
    };
    context.done(&report, render::change)
}

async fn set(args: &SetArgs, context: &Context) -> Result<Exit, CliError> {
    let wanted = args.change.wanted()?;
    let mut log = context.log().await?;
    let request = admin::request(args.request, &mut log);
    let mut made = None;
    let version = admin::commit(&mut log, "mixture", |m| {
        // By the state of now the same request would be another entry, or a refused one.
        if is_done(m, request) {
            return Ok(None);
        }
        let change = wanted.change(m)?;
        let entry = entry(&wanted, &change, request, m)?;
        made = Some((entry.id, change));
        Ok(Some(Entry::Mixture(entry)))
    })
    .await?;
    let (id, change) = made.filter(|_| version.is_some()).unzip();
    let report = ChangeReport {
        root: log.store().root().to_owned(),
        id,
        version,
        planned: false,
        change,
    };
    context.done(&report, render::change)
}

/// Returns whether the log has an entry of this request.
fn is_done(m: &Manifest, request: RequestId) -> bool {
    let entry = Entry::Mixture(Mixture {
        request,
        id: 0,
        from: BTreeMap::new(),
        spec: serde_json::Value::Null,
        why: None,
    });
    m.validate(&entry) == Ok(Validity::Repeat)
}

fn entry(
    wanted: &Wanted,
    change: &Change,
    request: RequestId,
    m: &Manifest,
) -> Result<Mixture, CliError> {
    let from: BTreeMap<ProducerName, Seq> = change.from().collect();
    let id = m.mixture().id + 1;
    let spec = wanted.spec(m, id, &from)?;
    Ok(Mixture {
        request,
        id,
        from,
        spec: spec.to_json(),
        why: None,
    })
}

impl ChangeArgs {
    fn wanted(&self) -> Result<Wanted, CliError> {
        let mut numbers = BTreeMap::new();
        for (name, number) in &self.weights {
            if numbers.insert(name.clone(), *number).is_some() {
                return Err(CliError::Usage(format!("{name} is given twice")));
            }
        }
        let weights = named_weights(&numbers).map_err(|why| CliError::Usage(why.to_string()))?;
        Ok(Wanted {
            weights,
            begin: match self.from_step {
                Some(step) => Begin::AtStep(step),
                None => Begin::After(self.after),
            },
            producers: self.producers.clone(),
        })
    }
}
