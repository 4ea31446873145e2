//! Checks that the root holds a stream, that its log is readable, and that it opens quickly.

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context;
use batchweave_console::output::count;
use batchweave_core::keys;
use batchweave_core::limits::SNAPSHOT_VERSIONS_MAX;
use batchweave_daemon::Exit;
use batchweave_log::{Log, LogError};
use batchweave_store::{Store, StoreError};

use super::finding::Finding;

pub(super) async fn check(store: &Arc<dyn Store>) -> Vec<Finding> {
    let log = match context::open_log(Arc::clone(store)).await {
        Ok(log) => log,
        Err(CliError::Log(LogError::NoStream { .. })) => {
            return vec![no_stream(store.as_ref()).await];
        }
        Err(e) => return vec![failed(&e)],
    };
    let m = log.manifest();
    let (records, steps) = (
        count(m.next_version(), "record"),
        count(m.next_step(), "step"),
    );
    let mut findings = vec![
        Finding::ok("identity", m.stream_id().to_string()),
        Finding::ok("log", format!("{records}, {steps}, no gap")),
    ];
    let void = m.void_entries() + m.void_records();
    if void > 0 {
        findings.push(Finding::warn(
            "entries",
            format!("{void} void: a writer is faulty; nothing is lost by that"),
            "find it with `batchweave log --from 0`, and stop it",
        ));
    }
    findings.push(snapshots(&log).await);
    findings
}

fn failed(error: &CliError) -> Finding {
    Finding::fail("log", error.to_string(), "", error.exit())
}

/// Reports a root without a stream: an empty one is ready for a stream, any other is not.
async fn no_stream(store: &dyn Store) -> Finding {
    match stranger(store).await {
        Ok(None) => Finding::warn(
            "stream.json",
            "there is no stream yet, and the root is empty",
            "start a producer with stream.create = true, or see `batchweave init --help`",
        ),
        Ok(Some(example)) => Finding::fail(
            "stream.json",
            format!("there is no stream, but the root holds something else, for example {example}"),
            "give the stream a root of its own, or remove what is there",
            Exit::StreamRefused,
        ),
        Err(error) => Finding::failed("stream.json", &error),
    }
}

/// Returns the key of an object outside `probe/`, where checks of the store write theirs.
async fn stranger(store: &dyn Store) -> Result<Option<String>, StoreError> {
    let page = store.list("", None).await?;
    let keys = page.objects.into_iter().map(|object| object.key);
    Ok(keys.into_iter().find(|key| !key.starts_with("probe/")))
}

/// Checks the snapshots: without one, opening the stream reads the whole log.
async fn snapshots(log: &Log) -> Finding {
    let name = "snapshots";
    let listed = match context::list(log.store().as_ref(), keys::SNAPSHOTS).await {
        Ok(listed) => listed,
        Err(e) => return Finding::failed(name, &e),
    };
    let newest = listed
        .iter()
        .filter_map(|o| keys::snapshot_version(&o.key))
        .max();
    let next = log.manifest().next_version();
    let behind = next - newest.map_or(0, |v| v + 1).min(next);
    let records = count(behind, "record");
    // Four times the interval at which readers write snapshots: they fail to.
    if behind > 4 * SNAPSHOT_VERSIONS_MAX {
        return Finding::warn(
            name,
            format!("{records} since the newest: opening the stream is slow"),
            "let producers and consumers create objects in snapshots/* and index/*",
        );
    }
    let detail = match newest {
        Some(version) => format!("newest at version {version}, {records} since"),
        None => format!("none yet, {records}"),
    };
    Finding::ok(name, detail)
}
