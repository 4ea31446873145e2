//! `batchweave doctor`: checks that a store is fit for a stream and that the stream there is sound. Prints
//! one line per finding, with the remedy beneath.
//!
//! Invariants:
//! - Objects are created below `probe/<random>/` only, and all are deleted, also after Ctrl-C.
//! - Nothing is ever written below `log/`: permissions there are checked in ways that create no object, and
//!   no key that a stream uses is ever deleted.

mod access;
mod contract;
mod finding;
mod latency;
mod permissions;
mod render;
mod rules;
mod stream;

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context::{self, Context};
use batchweave_daemon::Exit;
use batchweave_store::{Bucket, Location, Permission, Store, StoreError, Versioning};
use serde::Serialize;

use finding::{Check, Finding, Group, Level};
use latency::Latency;

const EXAMPLES: &str = "\
Examples:
  batchweave doctor --store s3://bucket/stream
  batchweave doctor --store s3://bucket/stream --read-only    with a consumer's permissions
  batchweave doctor --rounds 100 --samples 500 --json

It may be run before `init` and on a live stream: it creates objects below `probe/` only, and
deletes them. The exit code is that of the first check that failed; warnings leave it at 0.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Write nothing: check only the permissions of a consumer
    #[arg(long)]
    read_only: bool,
    /// Races of 16 concurrent creates on one key
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: usize,
    /// Number of requests of each kind to measure the latency of; 0 measures none
    #[arg(long, value_name = "N", default_value_t = 50)]
    samples: usize,
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    root: String,
    ok: bool,
    checks: Vec<Check>,
    latency: Vec<Latency>,
}

/// The store under examination.
struct Target<'a> {
    store: &'a Arc<dyn Store>,
    args: &'a DoctorArgs,
    random: u64,
}

impl Target<'_> {
    fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn bucket(&self) -> Option<&dyn Bucket> {
        self.store.inspect()?.bucket()
    }

    /// Returns the store's own name of a permission.
    fn grant(&self, permission: Permission) -> &'static str {
        let location = Location::parse(self.store.root()).ok();
        let name = location.and_then(|location| location.permission(permission));
        name.unwrap_or("access")
    }

    /// Returns a temporary key of this run.
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.folder())
    }

    fn folder(&self) -> String {
        format!("probe/{:016x}/", self.random)
    }
}

pub(crate) async fn run(args: &DoctorArgs, context: &Context) -> Result<Exit, CliError> {
    let mut report = DoctorReport {
        root: context.url()?,
        ok: true,
        checks: Vec::new(),
        latency: Vec::new(),
    };
    context.out.part(|style| style.bold(&report.root))?;
    let interrupted = examine_store(args, context, &mut report).await?;
    let mut findings = report.checks.iter().map(|check| &check.finding);
    let failed = findings.find(|finding| finding.verdict == Level::Fail);
    let exit = failed.map_or(Exit::Ok, |finding| finding.exit);
    report.ok = failed.is_none() && !interrupted;
    if interrupted {
        return Err(CliError::Absent(
            "interrupted; all objects below probe/ are deleted again".to_owned(),
        ));
    }
    context.out.report(&report, |report, style| {
        format!("\n{}", render::verdict(&report.checks, style))
    })?;
    Ok(exit)
}

/// Examines the store, if it can be opened at all. Returns whether a signal interrupted that.
async fn examine_store(
    args: &DoctorArgs,
    context: &Context,
    report: &mut DoctorReport,
) -> Result<bool, CliError> {
    match context.store(false).await {
        Ok(store) => {
            let target = Target {
                store: &store,
                args,
                random: rand::random(),
            };
            examine_and_clean(&target, context, report).await
        }
        Err(CliError::Store(e)) => {
            show(context, report, Group::Access, vec![access::refused(&e)])?;
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// Returns whether Ctrl-C interrupted the checks.
async fn examine_and_clean(
    target: &Target<'_>,
    context: &Context,
    report: &mut DoctorReport,
) -> Result<bool, CliError> {
    let outcome = tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => None,
        done = examine(target, context, report) => Some(done),
    };
    if !target.args.read_only
        && let Some(left) = clean(target).await
    {
        show(context, report, Group::Contract, vec![left])?;
    }
    outcome.transpose().map(|done| done.is_none())
}

async fn examine(
    target: &Target<'_>,
    context: &Context,
    report: &mut DoctorReport,
) -> Result<(), CliError> {
    let access = access::check(target).await;
    // A failure of the simplest request would fail all others.
    let barred = access.iter().any(|c| c.verdict == Level::Fail);
    show(context, report, Group::Access, access)?;
    if barred {
        return Ok(());
    }
    let contract = contract::check(target).await;
    show(context, report, Group::Contract, contract)?;
    let versioning = versioning(target).await;
    let permissions = permissions::check(target, versioning.as_ref()).await;
    show(context, report, Group::Permissions, permissions)?;
    if let (Some(bucket), Some(versioning)) = (target.bucket(), versioning) {
        let rules = rules::check(target, bucket, versioning).await;
        show(context, report, Group::Rules, rules)?;
    }
    let (latency, finding) = latency::measure(target).await;
    if let Some(finding) = finding {
        let table = render::latency(&latency, context.out.style);
        report.latency = latency;
        show(context, report, Group::Latency, vec![finding])?;
        context.out.part(|_| table)?;
    }
    let stream = stream::check(target.store).await;
    show(context, report, Group::Stream, stream)
}

async fn versioning(target: &Target<'_>) -> Option<Result<Versioning, StoreError>> {
    Some(target.bucket()?.versioning().await)
}

/// Prints the findings of one group and adds them to the report.
fn show(
    context: &Context,
    report: &mut DoctorReport,
    group: Group,
    findings: Vec<Finding>,
) -> Result<(), CliError> {
    let text = |style| format!("\n{}", render::group(group, &findings, style));
    context.out.part(text)?;
    let checks = findings.into_iter().map(|finding| Check { group, finding });
    report.checks.extend(checks);
    Ok(())
}

/// Deletes all objects of this run; returns a finding when some are left.
async fn clean(target: &Target<'_>) -> Option<Finding> {
    let (store, folder) = (target.store(), target.folder());
    // A store whose listing fails was reported before.
    let listed = context::list(store, &folder).await.ok()?;
    let mut left = Vec::new();
    for object in listed {
        left.extend(store.delete(&object.key).await.err());
    }
    if let Some(inspect) = store.inspect()
        && let Err(error) = inspect.tidy(&folder).await
    {
        tracing::debug!(%error, "tidying up after the examination");
    }
    left.last().map(|error| {
        let objects = batchweave_console::output::count(left.len() as u64, "object");
        let detail = format!("{objects} below {folder}: {}", error.detail);
        let grant = target.grant(Permission::Delete);
        let remedy = format!("delete {folder}; with {grant} on probe/* nothing stays");
        Finding::warn("left behind", detail, &remedy)
    })
}

#[cfg(test)]
mod tests;
