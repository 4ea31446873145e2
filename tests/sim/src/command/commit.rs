//! `batchweave-sim commit`: the load table.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use crate::load::scenario::Scenario;
use crate::load::{Figures, LoadPlan, run as run_load, svg};
use crate::policy::PolicyKind;
use crate::store::manifest::{ManifestKind, ManifestPlan};
use crate::store::profile::Profile;

/// The options of `commit`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// How many producers; several separated by commas
    #[arg(long, default_value = "64", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    producers: Vec<u32>,
    /// Entries per second of each producer
    #[arg(long, default_value_t = 2.0, value_parser = positive)]
    rate: f64,
    /// The store: s3-standard or s3-express
    #[arg(long, default_value = "s3-standard", value_parser = profile)]
    profile: Profile,
    /// Multiply all latencies by this
    #[arg(long, default_value_t = 1.0, value_parser = positive)]
    latency_scale: f64,
    /// The commit policy: dac, dac-unled (its leader does not say that it leads), interval (each
    /// producer adapts its own), plain (which backs off), backoff (the same), naive
    #[arg(long, default_value = "dac")]
    policy: PolicyKind,
    /// A version of the manifest: delta (a record of changes), rewrite (all entries) or
    /// rewrite-chunked (a list of chunks, and the newest)
    #[arg(long, default_value = "delta")]
    manifest: ManifestKind,
    /// Entries in the manifest at the start
    #[arg(long, value_name = "ENTRIES", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    history: u64,
    /// Leave no room in keys for copies of intents, as names of files
    #[arg(long)]
    short_keys: bool,
    /// steady, jumps, leader-killed, leader-frozen, slow-store, slow-producers, bursts, zipf,
    /// cold-start or rare
    #[arg(long, default_value = "steady")]
    scenario: Scenario,
    /// The measured virtual time in seconds, after a settling time
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// The seed of all random draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object for each number of producers, instead of a table
    #[arg(long)]
    json: bool,
    /// Write JSON with a timeline and a plot of each run to this folder
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(super) fn profile(name: &str) -> Result<Profile, String> {
    Profile::named(name).ok_or_else(|| format!("unknown store {name:?}: s3-standard, s3-express"))
}

pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("must be a number above 0".to_owned()),
    }
}

impl Arguments {
    /// Returns the load of this number of producers.
    fn plan(&self, asked: u32) -> LoadPlan {
        LoadPlan {
            asked,
            rate: self.rate,
            profile: self.profile.scaled(self.latency_scale),
            policy: self.policy,
            manifest: ManifestPlan {
                kind: self.manifest,
                history: self.history,
            },
            short_keys: self.short_keys,
            scenario: self.scenario,
            seconds: self.seconds,
            seed: self.seed,
        }
    }
}

/// Runs the load with each number of producers and prints its figures.
pub fn run(arguments: &Arguments, out: &mut impl Write) -> io::Result<bool> {
    if !arguments.json {
        header(out)?;
    }
    for &asked in &arguments.producers {
        let figures = run_load(&arguments.plan(asked))?;
        if let Some(folder) = &arguments.out {
            save(folder, &figures)?;
        }
        if arguments.json {
            let mut json = serde_json::to_value(&figures)?;
            if let Some(fields) = json.as_object_mut() {
                fields.remove("timeline");
            }
            writeln!(out, "{json}")?;
        } else {
            line(out, &figures)?;
        }
    }
    Ok(true)
}

/// Prints the names of the columns that `line` fills.
fn header(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>6} {:>9}",
        "producers",
        "p50 ms",
        "p99 ms",
        "max ms",
        "attempts",
        "requests",
        "http",
        "visible",
        "jain",
        "worst p99"
    )
}

fn save(folder: &PathBuf, f: &Figures) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let name = format!("{}-{}-{}-{}", f.profile, f.scenario, f.policy, f.producers);
    let json = serde_json::to_vec_pretty(f)?;
    fs::write(folder.join(format!("{name}.json")), json)?;
    fs::write(folder.join(format!("{name}.svg")), svg(f))
}

fn line(out: &mut impl Write, f: &Figures) -> io::Result<()> {
    if let Some(seconds) = f.opened_s {
        return writeln!(out, "{:>9} all open after {seconds:.2} s", f.producers);
    }
    writeln!(
        out,
        "{:>9} {:>9.1} {:>9.1} {:>9.1} {:>8.3} {:>8.2} {:>8.2} {:>8.4} {:>6.4} {:>9.1}",
        f.producers,
        f.p50_ms,
        f.p99_ms,
        f.max_ms,
        f.attempts_per_commit,
        f.requests_per_entry,
        f.http_requests_per_entry,
        f.visible_over_offered,
        f.jain,
        f.worst_producer_p99_ms
    )
}
