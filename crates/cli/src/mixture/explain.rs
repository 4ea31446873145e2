//! `batchweave mixture explain`: why a driver set a mixture, computed again from its stored reason, and from the losses while
//! they are kept.

use std::fmt::Write as _;

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::job::{JobSelector, incarnation};
use batchweave_console::output::{Style, cells, joined, printable, range, table};
use batchweave_core::drive::{SourceWhy, Why, WindowSums};
use batchweave_core::ids::Version;
use batchweave_daemon::Exit;
use batchweave_verify::FollowedRun;
use serde::Serialize;

use super::drive::{render_loss, render_percent};

/// Sums that count as equal differ by at most this part.
const EQUAL: f64 = 1e-9;

#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// The number of the mixture, as `mixture show` lists it
    #[arg(value_name = "ID")]
    id: u64,
}

#[derive(Debug, Serialize)]
struct ExplainReport {
    root: String,
    id: u64,
    /// The version that set it.
    version: Version,
    job: String,
    /// The reason as it is stored.
    why: Why,
    /// The facts that were checked, and those that could not be.
    checked: Vec<String>,
    unchecked: Vec<String>,
    /// The first fault of the change.
    fault: Option<String>,
}

pub(super) async fn run(args: &ExplainArgs, context: &Context) -> Result<Exit, CliError> {
    let store = context.store(false).await?;
    let reasoned = |why: Option<&serde_json::Value>| -> Result<Why, CliError> {
        let why = why.ok_or_else(|| {
            CliError::Absent(format!(
                "no driver set mixture {}: the log has no reason for it; `batchweave log` shows its entry",
                args.id
            ))
        })?;
        let newer = |error| {
            format!(
                "the reason of mixture {} is of a later release ({error}); upgrade this program",
                args.id
            )
        };
        Why::read(why).map_err(|error| CliError::Unsound(newer(error)))
    };
    let mut why = None;
    let run = FollowedRun::open_for(&store, |mixtures| {
        let stored = mixtures.mixture(args.id);
        let read = reasoned(stored.and_then(|mixture| mixture.why.as_ref()))?;
        let job = JobSelector {
            name: read.job.clone(),
            opened: Some(read.opened),
        };
        why = Some(read);
        Ok(job)
    });
    let run = run.await?;
    let record = run.record()?;
    let Some(why) = why else {
        return Err(CliError::Absent(format!("no mixture {}", args.id)));
    };
    let mut report = ExplainReport {
        root: run.root().to_owned(),
        id: args.id,
        version: run.mixtures().mixture(args.id).map_or(0, |m| m.version),
        job: incarnation(&record.name, record.opened),
        why,
        checked: Vec::new(),
        unchecked: Vec::new(),
        fault: None,
    };
    match run.mixtures().check(args.id, record) {
        Ok(_) => report.checked.extend(stated(&report.why)),
        Err(fault) => report.fault = Some(fault.to_string()),
    }
    let legs = run.mixtures().lineage_at(args.id, record);
    let steps = report.why.from..report.why.to;
    let found = run.losses(&legs).await?.window(steps).await?;
    report.compare(&found.sums);
    context.out.report(&report, text)?;
    match &report.fault {
        None => Ok(Exit::Ok),
        Some(fault) => Err(CliError::Unsound(format!("mixture {}: {fault}", args.id))),
    }
}

/// Returns what the log alone proves.
fn stated(why: &Why) -> Vec<String> {
    let rule = &why.settings.rule;
    let computed = match &why.settings.function {
        Some(function) => format!(
            "the bounds give the stored shares from the answer of {function}, which is stored, too"
        ),
        None => format!("rule {rule} gives the stored shares from the stored sums, to a billionth"),
    };
    vec![
        computed,
        "its steps were of the newest lineage, and wholly of the mixture before".to_owned(),
        "it goes on from the newest change of that lineage, and no step is counted twice"
            .to_owned(),
    ]
}

impl ExplainReport {
    fn compare(&mut self, found: &WindowSums) {
        let (kept, used) = (found.counted, self.why.counted);
        if kept != used {
            let what = if kept < used {
                "the losses of these steps are kept in part"
            } else {
                "more losses of these steps were stored after the change"
            };
            self.unchecked.push(format!(
                "the sums: {what} ({kept} pairs of step and coordinate, the change had {used})"
            ));
            return;
        }
        let differs = |one: &&SourceWhy| {
            let own = found.sources.get(&one.number).copied().unwrap_or_default();
            !(is_close(own.sum, one.sum) && is_close(own.weight, one.weight))
        };
        match self.why.sources.iter().find(differs) {
            None => self
                .checked
                .push("the stored losses of these steps give the stored sums".to_owned()),
            Some(source) => {
                let fault = format!(
                    "the stored losses of steps {} give other sums of source {} than the reason has",
                    range(self.why.from, self.why.to),
                    source.name
                );
                self.fault.get_or_insert(fault);
            }
        }
    }
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= EQUAL * a.abs().max(b.abs())
}

fn text(report: &ExplainReport, style: Style) -> String {
    let why = &report.why;
    let settings = &why.settings;
    let after = why.after.map_or_else(
        || "the first of its chain".to_owned(),
        |id| format!("goes on from mixture {id}"),
    );
    let mut text = format!(
        "mixture {} of {}, set by version {}: change {} by rule {}, {after}\nfrom the losses of job {}, attempt {}, steps {}: \
         {} of {} pairs of step and coordinate\nfloor {}, ceiling {}, step bound {}, every {} steps\n",
        report.id,
        report.root,
        report.version,
        why.change,
        settings.rule,
        report.job,
        why.attempt,
        range(why.from, why.to),
        why.counted,
        why.read,
        settings.floor,
        settings.ceiling,
        settings.step_bound,
        settings.every
    );
    let all: f64 = why.sources.iter().map(|one| one.weight).sum();
    let reward = |reward: Option<f64>| render_loss(reward);
    let row = |one: &SourceWhy| {
        cells![
            printable(&one.name),
            render_loss(one.sums().loss()),
            render_percent(one.weight / all),
            joined([reward(one.reward_before), reward(one.reward)], "-"),
            render_percent(one.before),
            one.wanted.map_or_else(|| "-".to_owned(), render_percent),
            render_percent(one.share)
        ]
    };
    let header = [
        "SOURCE",
        "LOSS",
        "TOKENS",
        "REWARD",
        "BEFORE",
        "BY THE RULE",
        "SHARE",
    ];
    text += &table(style, &header, why.sources.iter().map(row));
    for line in &report.checked {
        let _ = write!(text, "\n{}", style.green(&format!("checked: {line}")));
    }
    for line in &report.unchecked {
        let _ = write!(text, "\n{}", style.yellow(&format!("not checked: {line}")));
    }
    if let Some(fault) = &report.fault {
        let _ = write!(text, "\n{}", style.red(&format!("WRONG: {fault}")));
    }
    text
}
