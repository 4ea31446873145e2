//! `batchweave mixture drive --dry-run`: the rule on the losses that are stored, window after window. Tokens are those of the
//! mixtures that were really in force.

use std::collections::BTreeMap;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::job::incarnation;
use batchweave_core::drive::{KnownSource, Plan, Why, has_enough};
use batchweave_daemon::Exit;
use batchweave_verify::FollowedRun;

use super::commit::by_name;
use super::dry_run_report::{DryRunReport, Replayed, ReplayedSource};
use super::settings::{DriveArgs, Driver};
use super::{function, plot, render, sources};

/// Most windows of a replay.
const WINDOWS_MAX: u64 = 100_000;

pub(super) async fn run(
    driver: &Driver,
    args: &DriveArgs,
    run: &FollowedRun,
    context: &Context,
) -> Result<Exit, CliError> {
    let record = run.record()?;
    let unsound = |why: &dyn std::fmt::Display| CliError::Unsound(why.to_string());
    let legs = record.lineage().map_err(|why| unsound(&why))?;
    let losses = run.losses(&legs).await?;
    let known = sources::known(run.manifest(), 0)?;
    let mut report = DryRunReport {
        root: run.root().to_owned(),
        job: incarnation(&record.name, record.opened),
        rule: driver.settings.rule.clone(),
        from: losses.steps().start,
        to: losses.steps().end,
        without_values: 0,
        changes: Vec::new(),
    };
    let mut plan = Plan::replay(legs, &driver.settings);
    for n in 0..WINDOWS_MAX {
        let steps = plan.steps(n);
        if steps.end > report.to {
            break;
        }
        let window = losses.window(steps.clone()).await?;
        let (sums, read) = (window.sums, window.read);
        if !has_enough(sums.counted, read) {
            report.without_values += 1;
            continue;
        }
        let settings = &driver.settings;
        let known = at(&known, plan.after.as_ref().map(|(_, why)| by_name(why)));
        let why = plan.reason(settings, record, &steps, &sums, read, &known);
        let mut why = why.map_err(|error| CliError::Refused(error.to_string()))?;
        let answer = match &driver.function {
            Some(function) => function.ask(&function::Question::new(&why)).await?,
            None => BTreeMap::new(),
        };
        why.decide(answer)
            .map_err(|error| CliError::Refused(error.to_string()))?;
        report.changes.push(replayed(&why));
        plan.after = Some((n, why));
    }
    if report.changes.is_empty() {
        return Err(CliError::Absent(format!(
            "job {} has no {} steps with the losses of sources: {} windows lack them; use LossReporter, and add \
             packing.fields = [\"source_ids\"] to the producers",
            report.job, driver.settings.every, report.without_values
        )));
    }
    if let Some(file) = &args.svg {
        let write = std::fs::write(file, plot::svg(&report));
        write.map_err(|e| CliError::Input(format!("--svg {}: {e}", file.display())))?;
    }
    context.done(&report, render::dry_run)
}

/// Returns the sources with the shares of the change before.
fn at(known: &[KnownSource], before: Option<BTreeMap<String, f64>>) -> Vec<KnownSource> {
    let mut known = known.to_vec();
    for one in &mut known {
        let share = before.as_ref().and_then(|before| before.get(&one.name));
        one.share = share.copied().unwrap_or(one.share);
    }
    known
}

fn replayed(why: &Why) -> Replayed {
    let all: f64 = why.sources.iter().map(|one| one.weight).sum();
    let source = |one: &batchweave_core::drive::SourceWhy| ReplayedSource {
        source: one.name.clone(),
        loss: one.sums().loss(),
        tokens: one.weight / all,
        share: one.share,
    };
    Replayed {
        change: why.change,
        from: why.from,
        to: why.to,
        sources: why.sources.iter().map(source).collect(),
    }
}
