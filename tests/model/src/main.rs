//! `batchweave-model`: explores the configurations and reports the result.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use batchweave_model::config::{self, Config};
use batchweave_model::guard::Guard;
use batchweave_model::report::{self, Exploration};
use clap::Parser;

/// Explores all orders of events in small systems around the product's own fold, and checks the
/// protocol's properties in every state. Exits with code 1 when one is broken.
#[derive(Debug, Parser)]
#[command(name = "batchweave-model", version)]
struct Args {
    /// Explore all configurations of the model
    #[arg(long, conflicts_with = "config")]
    all: bool,
    /// Explore this configuration; repeatable
    #[arg(long, value_name = "NAME", value_parser = named)]
    config: Vec<Config>,
    /// Remove this guard from the writers; without --config, explore the configuration that needs
    /// it
    #[arg(long, value_name = "GUARD")]
    without: Option<Guard>,
    /// Use smaller bounds, which take a few seconds in total
    #[arg(long)]
    short: bool,
    /// Stop each configuration at this many states
    #[arg(long, value_name = "N", default_value_t = 200_000_000)]
    states_max: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn named(name: &str) -> Result<Config, String> {
    config::named(name).ok_or_else(|| {
        let names: Vec<_> = config::FULL.iter().map(|config| config.name).collect();
        format!(
            "there is no such configuration; known are {}",
            names.join(", ")
        )
    })
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut configs = match args.without {
        _ if !args.config.is_empty() => args.config.clone(),
        Some(guard) if !args.all => config::named(guard.needed_by().0).into_iter().collect(),
        _ => config::FULL.to_vec(),
    };
    if args.short {
        configs = configs.into_iter().map(Config::short).collect();
    }
    if !args.json {
        println!("{}", report::table_header());
    }
    let mut runs = Vec::new();
    for config in configs {
        let run = report::explore(config, args.without, args.states_max);
        if !args.json {
            println!("{}", run.line());
        }
        runs.push(run);
    }
    finish(&runs, args.json)
}

fn finish(runs: &[Exploration], json: bool) -> ExitCode {
    let states: u64 = runs.iter().map(|run| run.found.states).sum();
    let violations: usize = runs.iter().map(Exploration::violations).sum();
    if json {
        let runs: Vec<_> = runs.iter().map(Exploration::json).collect();
        let report = serde_json::json!({
            "states": states,
            "violations": violations,
            "runs": runs,
        });
        println!("{report:#}");
    } else {
        println!("{states} states in all, {violations} violations");
        for run in runs.iter().filter(|run| run.violations() > 0) {
            print!("\n{}", run.counterexample_text());
        }
    }
    ExitCode::from(u8::from(violations > 0))
}
