//! The check of a stream: its log, the copies of the log's information, and the objects that it names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context;
use batchweave_console::describe;
use batchweave_console::output::{Style, bytes, count, fields, range};
use batchweave_core::ids::{Step, Version};
use batchweave_core::keys;
use batchweave_store::Store;
use serde::Serialize;

use crate::copies::{self, Copies};
use crate::data::{self, DataReport};
use crate::fold::{Folding, VoidAt, VoidRun};
use crate::{Problem, VerifyArgs};

/// Problems that are listed; all are counted.
const LISTED: usize = 1000;

/// The result of checking a stream.
#[derive(Debug, Serialize)]
pub(crate) struct StreamReport {
    pub(crate) root: String,
    stream: String,
    /// Number of records in the log.
    records: Version,
    steps: Step,
    watermark: Step,
    /// Number of void entries and records, which all readers skip.
    void_count: u64,
    /// The first ones, at most `LISTED`.
    voids: Vec<VoidAt>,
    copies: Copies,
    objects: Objects,
    /// With --data: the data that was read.
    data: Option<DataReport>,
    pub(crate) problem_count: usize,
    /// The first ones, at most `LISTED`.
    pub(crate) problems: Vec<Problem>,
}

#[derive(Debug, Default, Serialize)]
struct Objects {
    /// Objects named by steps at or above the watermark, or by TGBs that wait for their turn.
    named: usize,
    /// Those of them that exist and have the right size.
    whole: usize,
    bytes: u64,
    /// Objects that are stored but not named: orphans, uploads under way, or data below the watermark.
    others: usize,
    others_bytes: u64,
}

/// Checks everything and collects problems; only an unreadable log is an error.
pub(crate) async fn check(
    store: &Arc<dyn Store>,
    args: &VerifyArgs,
    folding: &mut Folding,
) -> Result<StreamReport, CliError> {
    let mut problems = Vec::new();
    let mut bar = crate::log_bar(store).await?;
    let copies = copies::check(store, folding, &mut problems, |next| bar.reach(next)).await?;
    bar.end();
    folding.nothing_behind().await?;
    let head = folding.manifest().next_step();
    let objects = objects(store, folding, &mut problems).await?;
    let data = if args.data {
        let stream = folding.manifest().stream_id();
        Some(data::check(store, args, stream, &mut problems).await?)
    } else {
        None
    };
    problems.extend(folding.facts.void_row.map(void_run_problem));
    let problem_count = problems.len();
    problems.truncate(LISTED);
    Ok(StreamReport {
        root: store.root().to_owned(),
        stream: folding.manifest().stream_id().to_string(),
        records: folding.manifest().next_version(),
        steps: head,
        watermark: folding.manifest().watermark(),
        void_count: folding.facts.void_count,
        voids: folding.facts.voids.clone(),
        copies,
        objects,
        data,
        problem_count,
        problems,
    })
}

fn void_run_problem(row: VoidRun) -> Problem {
    let records = count(row.records, "record");
    let why = format!(
        "begins {records} in a row with void entries: their writers go on from another history than \
             this log has, and what they took for committed is not there"
    );
    Problem::at("record", keys::log(row.first), why)
}

/// Compares one listing of all data with the objects named before it. Missing objects are compared with the
/// watermark after it, because a reclaimer may be running.
async fn objects(
    store: &Arc<dyn Store>,
    folding: &mut Folding,
    problems: &mut Vec<Problem>,
) -> Result<Objects, CliError> {
    let named = folding.facts.objects.clone();
    let named_before = named.needed(folding.manifest().watermark());
    let listed = context::list(store.as_ref(), keys::DATA).await?;
    folding.follow(|_| ()).await?;
    let named_now = folding.facts.objects.needed(folding.manifest().watermark());
    let mut there = BTreeMap::new();
    let mut found = Objects::default();
    for object in listed {
        if named_now.contains_key(&*object.key) {
            there.insert(object.key, object.size);
        } else {
            found.others += 1;
            found.others_bytes += object.size;
        }
    }
    for (key, object) in named_before {
        if !named_now.contains_key(key) {
            continue;
        }
        found.named += 1;
        let steps = match object.first.zip(object.last) {
            Some((first, last)) => describe::steps(first, last),
            None => "batches that wait for their turn".to_owned(),
        };
        let why = match (there.get(key), object.bytes()) {
            (None, None) => format!(
                "is missing: the source documents of {steps} are unknown; restore it, their data is intact"
            ),
            (None, Some(_)) => format!(
                "is missing: {steps} can't be read; restore it from a bucket version or backup"
            ),
            (Some(&size), Some(bytes)) if bytes != size => {
                format!("has {size} bytes, the log says {bytes}: {steps} can't be read whole")
            }
            (Some(&size), _) => {
                found.whole += 1;
                found.bytes += size;
                continue;
            }
        };
        let mut problem = Problem::at("object", key.to_owned(), why);
        problem.step = object.first;
        problems.push(problem);
    }
    Ok(found)
}

impl StreamReport {
    pub(crate) fn text(&self, style: Style) -> String {
        let o = &self.objects;
        let records = count(self.records, "record");
        let steps = count(self.steps.saturating_sub(self.watermark), "step");
        let steps = format!("{steps} can be read: {}", range(self.watermark, self.steps));
        let (whole, others) = (bytes(o.bytes), bytes(o.others_bytes));
        let objects = format!(
            "{} of {} named ones are there and whole, {whole}; {} not named, {others}",
            o.whole, o.named, o.others
        );
        let mut rows = vec![
            ("root", self.root.clone()),
            ("stream", self.stream.clone()),
            ("log", format!("{records}, dense, all folded")),
            ("steps", steps),
            ("copies", self.copies()),
            ("objects", objects),
        ];
        rows.extend(self.data.iter().map(|data| ("data", data.text())));
        let mut text = fields(&rows);
        if self.void_count > 0 {
            let void = count(self.void_count, "entry");
            text += &style.yellow(&format!("void       {void}: skipped by all readers\n"));
        }
        for void in &self.voids {
            let entry = void.entry.map_or(String::new(), |n| format!(", entry {n}"));
            let _ = writeln!(text, "  version {}{entry}: {}", void.version, void.reason);
        }
        for problem in &self.problems {
            text += &style.red(&format!("FAIL  {}\n", problem.text()));
        }
        let unlisted = self.problem_count - self.problems.len();
        text + &match self.problem_count {
            0 if self.void_count == 0 => style.green("the stream is sound"),
            0 => style.yellow("the stream is sound but for what was skipped"),
            _ if unlisted > 0 => format!("and {unlisted} more"),
            _ => String::new(),
        }
    }

    fn copies(&self) -> String {
        let c = &self.copies;
        let missing = match c.segments_not_stored.len() as u64 {
            0 => String::new(),
            n => format!("; {} not stored, readers compute them", count(n, "segment")),
        };
        let snapshots = count(c.snapshots.len() as u64, "snapshot");
        let segments = count(c.segments, "index segment");
        let bundles = match c.bundles {
            0 => String::new(),
            n => format!("; {} of its records", count(n, "bundle")),
        };
        format!("{snapshots} and {segments} are what the log folds to{missing}{bundles}")
    }
}
