//! `batchweave-sim faults` and `lifecycle`: run the worlds of a range of seeds.

use std::io::{self, Write};
use std::ops::Range;

use clap::Args;

use crate::check::{check, growth};
use crate::evidence::Evidence;
use crate::evidence::Violation;
use crate::plan::Plan;
use crate::shrink::{RUNS_MAX, shrink};
use crate::store::link::LinkPlan;
use crate::story;
use crate::world::run as run_world;

/// The options of `faults` and `lifecycle`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The seeds A..B, without B; or one seed
    #[arg(long, default_value = "0..300", value_parser = seeds)]
    seeds: Range<u64>,
    /// Print one JSON object per seed, instead of text
    #[arg(long)]
    json: bool,
    /// Stop at the first seed that fails, without making it smaller
    #[arg(long)]
    no_shrink: bool,
    /// Run without slow links and wrong reads
    #[arg(long)]
    honest: bool,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |t: &str| t.parse::<u64>().map_err(|e| format!("{t:?}: {e}"));
    match text.split_once("..") {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

/// A function from a seed to its world.
pub type Worlds = fn(u64) -> Plan;

/// Runs the faulty world of one seed.
pub fn one(seed: u64) -> io::Result<(Evidence, Vec<Violation>)> {
    one_of(Plan::draw, seed)
}

/// Runs the world of one seed.
pub fn one_of(worlds: Worlds, seed: u64) -> io::Result<(Evidence, Vec<Violation>)> {
    let evidence = run_world(&worlds(seed))?;
    let violations = check(&evidence);
    Ok((evidence, violations))
}

/// Returns the story of a failing seed, made as small as possible.
pub fn explain(evidence: Evidence, violations: Vec<Violation>) -> io::Result<String> {
    explain_within(evidence, violations, RUNS_MAX)
}

/// Returns the story of a failing seed, made smaller in at most `runs_max` runs.
pub fn explain_within(
    evidence: Evidence,
    violations: Vec<Violation>,
    runs_max: usize,
) -> io::Result<String> {
    let seed = evidence.plan.seed;
    let smallest = shrink(evidence, violations, runs_max)?;
    let story = story::write(&smallest.evidence, &smallest.violations);
    let plan = serde_json::to_string(&smallest.evidence.plan).unwrap_or_default();
    Ok(format!(
        "seed {seed} fails; the smallest world found in {} runs:\n{plan}\n{story}",
        smallest.runs
    ))
}

/// Runs all seeds. Returns false if one broke a rule.
pub fn run(arguments: &Arguments, worlds: Worlds, out: &mut impl Write) -> io::Result<bool> {
    let (mut failed, mut requests) = (0, 0);
    for seed in arguments.seeds.clone() {
        let mut plan = worlds(seed);
        if arguments.honest {
            plan.link = LinkPlan::default();
        }
        let evidence = run_world(&plan)?;
        let violations = check(&evidence);
        requests += evidence.requests;
        if arguments.json {
            writeln!(out, "{}", json(&evidence, &violations))?;
        }
        if violations.is_empty() {
            continue;
        }
        failed += 1;
        if arguments.no_shrink {
            writeln!(
                out,
                "seed {seed} fails\n{}",
                story::write(&evidence, &violations)
            )?;
        } else if !arguments.json {
            writeln!(out, "{}", explain(evidence, violations)?)?;
        }
    }
    if !arguments.json {
        let worlds = arguments.seeds.end.saturating_sub(arguments.seeds.start);
        writeln!(
            out,
            "{worlds} worlds, {requests} requests: {failed} broke a rule"
        )?;
    }
    Ok(failed == 0)
}

fn json(evidence: &Evidence, violations: &[Violation]) -> serde_json::Value {
    let broken: Vec<_> = violations
        .iter()
        .map(|v| serde_json::json!({ "check": v.check, "version": v.version, "text": v.text }))
        .collect();
    serde_json::json!({
        "seed": evidence.plan.seed,
        "hash": format!("{:016x}", evidence.hash),
        "producers": evidence.plan.producers.len(),
        "jobs": evidence.plan.life.as_ref().map_or(0, |life| life.jobs.len()),
        "processes": evidence.actors.len(),
        "records": evidence.landed.iter().filter(|l| l.key.starts_with("log/")).count(),
        "requests": evidence.requests,
        "objects": growth::counts(evidence),
        "virtual_seconds": evidence.lasted.as_secs_f64(),
        "broken": broken,
    })
}
