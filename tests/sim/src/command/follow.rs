//! `batchweave-sim follow`: the cost of thousands of nodes that follow one log.

use std::io::{self, Write};

use clap::Args;

use crate::follow::{FollowPlan, Followed, run as run_follow};
use crate::store::profile::Profile;

/// The options of `follow`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// How many nodes; several separated by commas
    #[arg(long, default_value = "1000", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_536))]
    nodes: Vec<u32>,
    /// Steps between their trainers and the head; with 0 they wait for each step
    #[arg(long, default_value = "0,64", value_delimiter = ',')]
    lead: Vec<u64>,
    /// Committed steps per second
    #[arg(long, default_value_t = 2.0, value_parser = super::commit::positive)]
    rate: f64,
    /// The store: s3-standard or s3-express
    #[arg(long, default_value = "s3-standard", value_parser = super::commit::profile)]
    profile: Profile,
    /// The measured virtual time in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// The nodes do not know their number
    #[arg(long)]
    unaware: bool,
    /// The seed of all random draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object for each case, instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs each number of nodes with each lead and prints the figures.
pub fn run(arguments: &Arguments, out: &mut impl Write) -> io::Result<bool> {
    if !arguments.json {
        writeln!(
            out,
            "{:>7} {:>5} {:>12} {:>12} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "nodes",
            "lead",
            "key GET/s",
            "key peak",
            "log GET/s",
            "records",
            "bundles",
            "503s",
            "p50 ms",
            "p99 ms"
        )?;
    }
    for &nodes in &arguments.nodes {
        for &lead in &arguments.lead {
            let plan = FollowPlan {
                nodes,
                lead,
                rate: arguments.rate,
                profile: arguments.profile,
                seconds: arguments.seconds,
                aware: !arguments.unaware,
                seed: arguments.seed,
            };
            let followed = run_follow(&plan)?;
            if arguments.json {
                writeln!(out, "{}", serde_json::to_string(&followed)?)?;
            } else {
                line(out, &followed)?;
            }
        }
    }
    Ok(true)
}

fn line(out: &mut impl Write, f: &Followed) -> io::Result<()> {
    writeln!(
        out,
        "{:>7} {:>5} {:>12.0} {:>12} {:>10.0} {:>9} {:>9} {:>9} {:>9.0} {:>9.0}",
        f.nodes,
        f.lead,
        f.busiest_key_per_second,
        f.busiest_key_peak,
        f.log_reads_per_second,
        f.records_peak,
        f.bundles_peak,
        f.throttled,
        f.delivery_p50_ms,
        f.delivery_p99_ms
    )
}
