//! `batchweave plan`: estimates latency of commits, requests, cost and the first limit of a stream of a
//! given size. It only computes and makes no requests.

mod estimate;
mod limits;
mod prices;
mod profile;
mod render;
mod simulated;

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use batchweave_daemon::Exit;
use batchweave_daemon::config::ByteSize;
use serde::Serialize;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use estimate::Load;
use prices::Prices;
use profile::Profile;
use simulated::Table;

const EXAMPLES: &str = "\
Examples:
  batchweave plan --producers 64 --rate 2 --tgb-bytes 16MiB --nodes 128 --store s3-standard
  batchweave plan --producers 8 --rate 0.5 --tgb-bytes 64MiB --nodes 512 --store s3-express --explain
  batchweave plan --producers 64 --rate 2 --tgb-bytes 16MiB --nodes 128 --prices mine.toml --json

--store names a kind of store here, not a root: s3-standard (the default) or s3-express.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// Producer daemons that commit to the stream
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    producers: u32,
    /// Global batches per second of each producer
    #[arg(long, value_name = "R", value_parser = positive)]
    rate: f64,
    /// Size of a global batch: 16MiB, 4MB, or a number of bytes
    #[arg(long, value_name = "B", value_parser = size)]
    tgb_bytes: u64,
    /// Nodes that read the stream
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: u32,
    /// Tokens in a global batch [default: its bytes divided by those of a token]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    tokens_per_tgb: Option<u64>,
    /// Bytes of a stored token: 2 for vocabularies up to 65,536, otherwise 4
    #[arg(long, value_name = "B", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=8))]
    token_bytes: u64,
    /// Days until data is reclaimed; adds the cost of its storage
    #[arg(long, value_name = "D", value_parser = positive)]
    keep_days: Option<f64>,
    /// A price list of your own, as config/prices.toml
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Print the formulas and their assumptions
    #[arg(long)]
    explain: bool,
}

/// Parses a positive, finite number.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 && number <= 1e6 => Ok(number),
        _ => Err("expected a number above 0, at most 1000000".to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = match text.parse::<u64>() {
        Ok(bytes) => bytes,
        Err(_) => ByteSize::from_str(text)?.bytes(),
    };
    match bytes {
        1..=0x100_0000_0000 => Ok(bytes),
        _ => Err("expected a size from 1 byte to 1TiB".to_owned()),
    }
}

/// The estimate with its inputs, limits and notes.
#[derive(Debug, Serialize)]
struct PlanReport {
    store: Profile,
    load: Load,
    /// The source of latencies and requests per commit.
    source: String,
    prices: PricesUsed,
    #[serde(flatten)]
    estimate: estimate::Estimate,
    limits: Vec<limits::Limit>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PricesUsed {
    date: String,
    currency: String,
    source: String,
}

pub(crate) fn run(args: &PlanArgs, context: &Context) -> Result<Exit, CliError> {
    let store = profile(context)?;
    let prices = prices(args)?;
    let plan = plan(args, store, &prices)?;
    context.out.report(&plan, |plan, style| {
        let mut text = render::text(plan, style);
        if args.explain {
            text += &render::explanation(plan, style);
        }
        text
    })?;
    Ok(Exit::Ok)
}

fn profile(context: &Context) -> Result<Profile, CliError> {
    let Some(name) = context.store_option() else {
        return Ok(Profile::S3Standard);
    };
    Profile::named(name).ok_or_else(|| {
        let known = Profile::ALL.map(Profile::name).join(" or ");
        CliError::Usage(format!(
            "unknown kind of store {name:?}: expected --store {known}"
        ))
    })
}

fn prices(args: &PlanArgs) -> Result<Prices, CliError> {
    let Some(path) = &args.prices else {
        return Prices::shipped();
    };
    let place = path.display();
    let text = fs::read_to_string(path)
        .map_err(|e| CliError::Input(format!("cannot read the prices in {place}: {e}")))?;
    Prices::parse(&text).map_err(|why| {
        CliError::Input(format!(
            "the prices in {place}: {why}; take config/prices.toml as a model"
        ))
    })
}

fn plan(args: &PlanArgs, store: Profile, prices: &Prices) -> Result<PlanReport, CliError> {
    let tariff = prices
        .for_store(store.name())
        .ok_or_else(|| CliError::Input(format!("the prices have no table [{}]", store.name())))?;
    let table = Table::shipped()?;
    let load = Load {
        producers: args.producers,
        rate: args.rate,
        tgb_bytes: args.tgb_bytes,
        nodes: args.nodes,
        tokens_per_tgb: args
            .tokens_per_tgb
            .unwrap_or((args.tgb_bytes / args.token_bytes).max(1)),
        keep_days: args.keep_days,
    };
    let (figures, notes) = table.at(store.name(), load.producers, load.rate)?;
    let estimate = estimate::estimate(&load, store, &figures, tariff);
    Ok(PlanReport {
        store,
        source: format!("{}, {}", table.source, table.date),
        prices: PricesUsed {
            date: prices.date.clone(),
            currency: prices.currency.clone(),
            source: tariff.source.clone(),
        },
        limits: limits::limits(store, &estimate),
        load,
        estimate,
        notes,
    })
}

#[cfg(test)]
mod tests;
