//! `batchweave doctor`: is this store fit for a stream, and is the stream there sound? One line a
//! check, with what to do where it is not ok.

use std::sync::Arc;

use batchweave_core::keys;
use batchweave_core::limits::SNAPSHOT_VERSIONS_MAX;
use batchweave_daemon::Exit;
use batchweave_log::{Log, LogError};
use batchweave_store::{Access, Create, ErrorKind, Store, StoreError};
use serde::Serialize;

use crate::context::{self, Context};
use crate::error::CliError;
use crate::output::{Style, count};

const EXAMPLES: &str = "\
Examples:
  batchweave doctor --store s3://bucket/stream
  batchweave doctor --store s3://bucket/stream --read-only    with a consumer's permissions
  batchweave doctor --rounds 100 --json

It writes to `probe/` below the root only, and deletes that again. The exit code is that of the
first check that failed; warnings leave it at 0.";

/// Arguments of `batchweave doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Write nothing: check what a consumer needs
    #[arg(long)]
    read_only: bool,
    /// Races of 16 concurrent creates on one key
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One line.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    detail: String,
    #[serde(skip)]
    exit: Exit,
}

#[derive(Debug, Serialize)]
struct Report {
    root: String,
    ok: bool,
    checks: Vec<Check>,
}

pub(crate) async fn run(args: &DoctorArgs, context: &Context) -> Result<Exit, CliError> {
    let mut checks = Vec::new();
    let mut root = context.url()?;
    match context.store(false).await {
        Ok(store) => {
            root = store.root().to_owned();
            checks.push(Check::ok("store", format!("{root} opened")));
            check_store(args, store.as_ref(), &mut checks).await;
            if !checks.iter().any(|c| c.verdict == Verdict::Fail) {
                check_stream(&store, &mut checks).await;
            }
            checks.extend(unseen(&root));
        }
        Err(e @ CliError::Usage(_)) => return Err(e),
        Err(e) => checks.push(Check::failed("store", &e)),
    }
    let failed = checks.iter().find(|c| c.verdict == Verdict::Fail);
    let exit = failed.map_or(Exit::Ok, |c| c.exit);
    let report = Report {
        root,
        ok: failed.is_none(),
        checks,
    };
    context.out.report(&report, render)?;
    Ok(exit)
}

async fn check_store(args: &DoctorArgs, store: &dyn Store, checks: &mut Vec<Check>) {
    let random: u64 = rand::random();
    let read = batchweave_store::probe_read(store, random).await;
    let reads = read.is_ok();
    checks.push(Check::of(
        "get",
        read.map(|()| "a missing key is reported as missing".to_owned()),
    ));
    if !reads {
        // Whatever stands in the way of the simplest request stands in the way of the others.
        return;
    }
    let listed = context::list(store, keys::SNAPSHOTS).await;
    checks.push(Check::of(
        "list",
        listed.map(|_| "keys can be listed".to_owned()),
    ));
    if store.root().starts_with("s3://") {
        checks.push(Check::ok(
            "clock",
            "the store accepts what this clock signs",
        ));
    }
    if args.read_only {
        checks.push(Check::warn("create", "not checked (--read-only)"));
        return;
    }
    let created = create(store, random).await;
    let writes = created.is_ok();
    checks.push(Check::of(
        "create",
        created.map(|()| "an object was made and read back".to_owned()),
    ));
    if writes {
        checks.push(delete(store, random).await);
        checks.push(exclusive(store, random, args.rounds).await);
    }
}

fn probe_key(random: u64) -> String {
    format!("probe/{random:016x}/doctor")
}

async fn create(store: &dyn Store, random: u64) -> Result<(), StoreError> {
    let key = probe_key(random);
    let body = "made by `batchweave doctor`; may be deleted\n";
    let created = store.create(&key, body.into()).await?;
    let found = store.get(&key).await?;
    if created == Create::Created && found == body {
        return Ok(());
    }
    let location = format!("{}/{key}", store.root());
    let detail = "the object read back is not the one that was created";
    Err(StoreError::new(
        batchweave_store::Op::Create,
        location,
        ErrorKind::Contract,
        batchweave_store::Effect::Unknown,
        detail,
    ))
}

/// Producers can do without: only reclamation needs it.
async fn delete(store: &dyn Store, random: u64) -> Check {
    match store.delete(&probe_key(random)).await {
        Ok(()) => Check::ok("delete", "the object was deleted again"),
        Err(e) => Check::warn(
            "delete",
            format!("{e}; reclamation and snapshot pruning need it"),
        ),
    }
}

async fn exclusive(store: &dyn Store, random: u64, rounds: usize) -> Check {
    let name = "exclusive create";
    match batchweave_store::probe_long(store, random, rounds, Access::Write).await {
        Ok(seen) if seen.unclear_answers > 0 => {
            let unclear = count(seen.unclear_answers as u64, "loser");
            let rounds = count(seen.rounds as u64, "race");
            Check::ok(
                name,
                format!("one winner in each of {rounds}; {unclear} got no clear answer"),
            )
        }
        Ok(seen) => {
            let rounds = count(seen.rounds as u64, "race");
            Check::ok(
                name,
                format!("exactly one winner in each of {rounds} of 16"),
            )
        }
        Err(e) => Check::of(name, Err(e)),
    }
}

async fn check_stream(store: &Arc<dyn Store>, checks: &mut Vec<Check>) {
    let log = match context::open_log(Arc::clone(store)).await {
        Ok(log) => log,
        Err(CliError::Log(LogError::NoStream { .. })) => {
            checks.push(no_stream(store.as_ref()).await);
            return;
        }
        Err(e) => return checks.push(Check::failed("stream", &e)),
    };
    let m = log.manifest();
    let (records, steps) = (
        count(m.next_version(), "record"),
        count(m.next_step(), "step"),
    );
    checks.push(Check::ok(
        "stream",
        format!("{}: {records}, {steps}, no gap", m.stream_id()),
    ));
    let void = m.void_entries() + m.void_records();
    if void > 0 {
        let detail = format!(
            "{void} void: a writer is faulty, nothing is lost; `batchweave log --from 0` shows which"
        );
        checks.push(Check::warn("entries", detail));
    }
    checks.push(snapshots(&log).await);
}

/// An empty root is ready for a stream; one that holds something else is not.
async fn no_stream(store: &dyn Store) -> Check {
    let stranger = match store.list("", None).await {
        Ok(page) => page
            .objects
            .into_iter()
            .find(|o| !o.key.starts_with("probe/")),
        Err(e) => return Check::of("stream", Err(e)),
    };
    match stranger {
        None => Check::warn(
            "stream",
            "none yet: the root is empty; `batchweave init` or a producer makes one",
        ),
        Some(object) => {
            let root = store.root().to_owned();
            let error = LogError::RootInUse {
                root,
                example: object.key,
            };
            Check::failed("stream", &error.into())
        }
    }
}

/// Without a snapshot everybody who opens the stream reads its whole log.
async fn snapshots(log: &Log) -> Check {
    let name = "snapshots";
    let listed = match context::list(log.store().as_ref(), keys::SNAPSHOTS).await {
        Ok(listed) => listed,
        Err(e) => return Check::of(name, Err(e)),
    };
    let newest = listed
        .iter()
        .filter_map(|o| keys::snapshot_version(&o.key))
        .max();
    let behind = log.manifest().next_version()
        - newest
            .map_or(0, |v| v + 1)
            .min(log.manifest().next_version());
    let behind_text = count(behind, "record");
    match newest {
        _ if behind > 4 * SNAPSHOT_VERSIONS_MAX => Check::warn(
            name,
            format!(
                "{behind_text} since the newest: opening is slow; do producers have s3:PutObject on snapshots/?"
            ),
        ),
        Some(version) => Check::ok(
            name,
            format!("newest at version {version}, {behind_text} since"),
        ),
        None => Check::ok(name, format!("none yet, {behind_text}")),
    }
}

/// What no request of ours can find out.
fn unseen(root: &str) -> Option<Check> {
    let bucket = root.strip_prefix("s3://")?.split('/').next()?;
    Some(Check::warn(
        "bucket rules",
        format!(
            "not checked: no lifecycle rule may expire log/ or stream.json, and with versioning their \
             deletion must be denied; see `aws s3api get-bucket-lifecycle-configuration --bucket {bucket}` \
             and `get-bucket-versioning`"
        ),
    ))
}

impl Check {
    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Ok,
            detail: detail.into(),
            exit: Exit::Ok,
        }
    }

    fn warn(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Warn,
            detail: detail.into(),
            exit: Exit::Ok,
        }
    }

    fn failed(name: &'static str, error: &CliError) -> Self {
        Self {
            name,
            verdict: Verdict::Fail,
            detail: error.to_string(),
            exit: error.exit(),
        }
    }

    fn of(name: &'static str, outcome: Result<String, StoreError>) -> Self {
        match outcome {
            Ok(detail) => Self::ok(name, detail),
            Err(e) => Self::failed(name, &e.into()),
        }
    }
}

fn render(report: &Report, style: Style) -> String {
    let width = report
        .checks
        .iter()
        .map(|c| c.name.len())
        .max()
        .unwrap_or(0);
    let line = |check: &Check| {
        let verdict = match check.verdict {
            Verdict::Ok => style.green("ok  "),
            Verdict::Warn => style.yellow("warn"),
            Verdict::Fail => style.red("FAIL"),
        };
        format!("{verdict}  {:width$}  {}\n", check.name, check.detail)
    };
    report.checks.iter().map(line).collect()
}
