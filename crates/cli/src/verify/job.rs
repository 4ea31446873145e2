//! The proof of a run: the ledgers of its lineage against the digests in the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_core::ids::{AttemptNo, Step, Version};
use batchweave_core::keys;
use batchweave_core::lifecycle::{
    AttemptRecord, Contradiction, JobRecord, Ledger, LedgerPlace, Leg, LegProof, Named, ProvenLeg,
};
use batchweave_core::manifest::entry::Parent;
use batchweave_store::Store;
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;

use super::JobArg;
use super::bar::Bar;
use super::fold::Folding;
use crate::context;
use crate::error::CliError;
use crate::output::{Style, count, fields, range, table};

/// Ledgers read at a time.
const READS: usize = 16;

/// What was proved, or what speaks against it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) root: String,
    pub(crate) job: String,
    /// The version that opened it.
    pub(crate) opened: Version,
    pub(crate) closed: Option<Version>,
    pub(crate) watermark: Step,
    /// `proved` or `contradiction`.
    pub(crate) verdict: &'static str,
    pub(crate) contradiction: Option<String>,
    /// First step of the run, and the one after the last proved.
    pub(crate) from: Step,
    pub(crate) to: Step,
    /// Steps that went to all data coordinates.
    pub(crate) steps: u64,
    pub(crate) ledgers: u64,
    /// The attempts that the final model comes from, the oldest first.
    pub(crate) lineage: Vec<LegReport>,
    /// All attempts, for the picture.
    pub(crate) attempts: Vec<AttemptReport>,
}

/// One attempt of the lineage.
#[derive(Debug, Serialize)]
pub(crate) struct LegReport {
    pub(crate) attempt: AttemptNo,
    pub(crate) id: String,
    pub(crate) opened: Version,
    pub(crate) from: Step,
    /// None: not proved so far.
    pub(crate) to: Option<Step>,
    pub(crate) dp_size: u32,
    pub(crate) restarted_from: Option<Parent>,
    pub(crate) proved: bool,
    pub(crate) steps: u64,
    pub(crate) skipped: u64,
    /// By rank: received again, told by a later entry, trained and thrown away.
    pub(crate) again: u64,
    pub(crate) retold: u64,
    pub(crate) thrown_away: u64,
    /// Coordinates that are further than what is proved, and where they stand.
    pub(crate) tail: Vec<(u32, Step)>,
}

/// Any attempt, by what its keys say.
#[derive(Debug, Serialize)]
pub(crate) struct AttemptReport {
    pub(crate) attempt: AttemptNo,
    pub(crate) parent: Option<Parent>,
    pub(crate) start: Step,
    /// As far as marks, progress and ledgers show by their names.
    pub(crate) reached: Step,
    pub(crate) dp_size: u32,
    pub(crate) skips: Vec<(Step, Step)>,
    /// Complete checkpoint marks.
    pub(crate) marks: Vec<Step>,
}

/// Names of the objects in a job's folder.
#[derive(Default)]
struct Listed {
    /// First step and key of each ledger, by attempt.
    ledgers: BTreeMap<AttemptNo, Vec<(Step, String)>>,
    /// Single coordinates' marks and what all coordinates have marked, by attempt.
    marks: BTreeMap<AttemptNo, BTreeMap<Step, Vec<Option<u32>>>>,
    reached: BTreeMap<AttemptNo, Step>,
}

/// Proves the run of a job, up to `to` where given.
pub(crate) async fn prove(
    store: &Arc<dyn Store>,
    job: &JobArg,
    to: Option<Step>,
) -> Result<Report, CliError> {
    let mut folding = Folding::begin(Arc::clone(store)).await?;
    let mut bar = super::log_bar(store).await?;
    let mut shown = 0;
    folding
        .follow(|next| bar.add(next - std::mem::replace(&mut shown, next), 0))
        .await?;
    bar.end();
    let root = store.root();
    let record = folding.facts.history.job(&job.name, job.opened);
    let record = record.ok_or_else(|| absent(root, &folding, job))?;
    if record.attempts.is_empty() {
        return Err(CliError::Absent(format!(
            "job {}@{} of {root} has no attempt: nobody has read anything for it",
            record.name, record.opened
        )));
    }
    let listed = Listed::list(store, record).await?;
    let mut report = Report::new(root, record, &listed, folding.manifest().watermark());
    let proof = Proof {
        store,
        folding: &folding,
        record,
        listed: &listed,
    };
    if let Err(failed) = proof.run(to, &mut report).await {
        match failed {
            Failed::Contradiction(why) => {
                report.verdict = "contradiction";
                report.contradiction = Some(why.to_string());
            }
            Failed::Cli(why) => return Err(why),
        }
    }
    Ok(report)
}

fn absent(root: &str, folding: &Folding, job: &JobArg) -> CliError {
    let known = folding.facts.history.jobs();
    let known: Vec<_> = known.map(|j| format!("{}@{}", j.name, j.opened)).collect();
    let known = if known.is_empty() {
        "it has had none".to_owned()
    } else {
        format!("it has had {}", known.join(", "))
    };
    let opened = job.opened.map_or(String::new(), |v| format!("@{v}"));
    CliError::Absent(format!("no job {}{opened} in {root}: {known}", job.name))
}

/// A proof ends early by what speaks against it, or because something can't be read.
enum Failed {
    Contradiction(Contradiction),
    Cli(CliError),
}

impl<E: Into<Contradiction>> From<E> for Failed {
    fn from(why: E) -> Self {
        Self::Contradiction(why.into())
    }
}

struct Proof<'p> {
    store: &'p Arc<dyn Store>,
    folding: &'p Folding,
    record: &'p JobRecord,
    listed: &'p Listed,
}

impl Proof<'_> {
    async fn run(&self, to: Option<Step>, report: &mut Report) -> Result<(), Failed> {
        let attempts = self.record.attempts.len() as u64;
        if let Some((_, strange)) = self.listed.ledgers.range(attempts..).next() {
            let key = strange.first().map(|(_, key)| key.clone());
            let key = key.unwrap_or_default();
            return Err(Contradiction::UnknownAttempt { key }.into());
        }
        let mut legs = self.record.lineage().map_err(Contradiction::from)?;
        legs.retain(|leg| to.is_none_or(|to| leg.from < to));
        if let (Some(last), Some(to)) = (legs.last_mut(), to) {
            last.to = Some(last.to.map_or(to, |end| end.min(to)));
        }
        let attempt = |leg: &Leg| self.record.attempt(leg.attempt);
        let found: Vec<_> = legs
            .iter()
            .filter_map(|leg| Some((*leg, attempt(leg)?)))
            .collect();
        report.lineage = found
            .iter()
            .map(|(leg, a)| LegReport::new(leg, a))
            .collect();
        let all: usize = legs.iter().map(|leg| self.ledgers(leg.attempt).len()).sum();
        let mut bar = Bar::new("ledgers", all as u64);
        for (n, (leg, attempt)) in found.into_iter().enumerate() {
            let proven = self.leg(leg, attempt, &mut bar).await;
            bar.end();
            report.note(n, proven?);
        }
        Ok(())
    }

    fn ledgers(&self, attempt: AttemptNo) -> &[(Step, String)] {
        self.listed.ledgers.get(&attempt).map_or(&[], Vec::as_slice)
    }

    async fn leg(
        &self,
        leg: Leg,
        attempt: &AttemptRecord,
        bar: &mut Bar,
    ) -> Result<ProvenLeg, Failed> {
        let manifest = self.folding.manifest();
        let log = |step: Step| -> Option<Named> { self.folding.facts.named(step) };
        let mut proof = LegProof::new(attempt, leg, manifest.stream().slices);
        let keys = self.ledgers(leg.attempt);
        let nexts = keys.iter().skip(1).map(|(first, _)| Some(*first));
        let reads = keys.iter().zip(nexts.chain([None]));
        let reads = reads.map(|((_, key), next)| async move {
            let bytes = self.store.get(key).await;
            bytes.map(|bytes| (key, next, bytes))
        });
        let mut reads = futures::stream::iter(reads).buffered(READS);
        while let Some((key, next, bytes)) = reads.try_next().await.map_err(cli)? {
            bar.add(1, bytes.len() as u64);
            let place = LedgerPlace {
                stream: manifest.stream_id(),
                job: &self.record.name,
                opened: self.record.opened,
                attempt: leg.attempt,
            };
            let ledger = Ledger::from_json(&bytes, key, &place);
            proof.add(key, ledger.map_err(Contradiction::Ledger)?)?;
            if let Some(next) = next {
                proof.settle(next, &log)?;
            }
        }
        if leg.to.is_none() {
            self.note_marks(leg.attempt, &mut proof);
        }
        let closed = self.record.closed.map(|_| 0);
        Ok(proof.finish(closed.or(manifest.end()), &log)?)
    }

    /// Ledgers are stored before the marks of their steps.
    fn note_marks(&self, attempt: AttemptNo, proof: &mut LegProof<'_>) {
        let head = self.folding.manifest().next_step();
        let marks = self.listed.marks.get(&attempt).into_iter().flatten();
        for (step, by) in marks.filter(|(step, _)| **step <= head) {
            for coordinate in by.iter().flatten() {
                proof.marked(*coordinate, *step);
            }
        }
    }
}

fn cli(why: impl Into<CliError>) -> Failed {
    Failed::Cli(why.into())
}

impl Listed {
    async fn list(store: &Arc<dyn Store>, record: &JobRecord) -> Result<Self, CliError> {
        let folder = keys::job_folder(&record.name, record.opened);
        let mut listed = Self::default();
        for object in context::list(store.as_ref(), &folder).await? {
            let key = object.key;
            if let Some(ledger) = keys::parse_ledger(&key) {
                listed.reach(ledger.owner.attempt, ledger.first);
                let all = listed.ledgers.entry(ledger.owner.attempt).or_default();
                all.push((ledger.first, key));
            } else if let Some(mark) = keys::parse_mark(&key) {
                listed.reach(mark.owner.attempt, mark.step);
                let all = listed.marks.entry(mark.owner.attempt).or_default();
                all.entry(mark.step).or_default().push(mark.coordinate);
            } else if let Some(progress) = keys::parse_progress(&key) {
                listed.reach(progress.owner.attempt, progress.step);
            }
        }
        for all in listed.ledgers.values_mut() {
            all.sort();
        }
        Ok(listed)
    }

    fn reach(&mut self, attempt: AttemptNo, step: Step) {
        let reached = self.reached.entry(attempt).or_default();
        *reached = step.max(*reached);
    }

    fn complete_marks(&self, attempt: &AttemptRecord) -> Vec<Step> {
        let marks = self.marks.get(&attempt.state.number).into_iter().flatten();
        let complete = |by: &Vec<Option<u32>>| {
            by.contains(&None) || by.len() >= attempt.state.dp_size as usize
        };
        let complete = marks.filter(|(_, by)| complete(by));
        complete.map(|(step, _)| *step).collect()
    }
}

impl LegReport {
    fn new(leg: &Leg, attempt: &AttemptRecord) -> Self {
        let state = &attempt.state;
        Self {
            attempt: leg.attempt,
            id: state.id.to_string(),
            opened: state.opened,
            from: leg.from,
            to: leg.to,
            dp_size: state.dp_size,
            restarted_from: state.parent,
            proved: false,
            steps: 0,
            skipped: 0,
            again: 0,
            retold: 0,
            thrown_away: 0,
            tail: Vec::new(),
        }
    }
}

impl Report {
    fn new(root: &str, record: &JobRecord, listed: &Listed, watermark: Step) -> Self {
        let attempt = |a: &AttemptRecord| AttemptReport {
            attempt: a.state.number,
            parent: a.state.parent,
            start: a.state.start,
            reached: listed
                .reached
                .get(&a.state.number)
                .map_or(a.state.start, |step| (*step).max(a.state.start)),
            dp_size: a.state.dp_size,
            skips: a.skips.iter().map(|s| (s.start, s.end)).collect(),
            marks: listed.complete_marks(a),
        };
        Self {
            root: root.to_owned(),
            job: record.name.to_string(),
            opened: record.opened,
            closed: record.closed,
            watermark,
            verdict: "proved",
            contradiction: None,
            from: record.start,
            to: record.start,
            steps: 0,
            ledgers: listed.ledgers.values().map(|all| all.len() as u64).sum(),
            lineage: Vec::new(),
            attempts: record.attempts.iter().map(attempt).collect(),
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("{}@{}", self.job, self.opened)
    }

    fn note(&mut self, n: usize, proven: ProvenLeg) {
        self.steps += proven.steps;
        self.to = proven.end;
        if let Some(attempt) = self.attempts.get_mut(proven.leg.attempt as usize) {
            let furthest = proven.tail.iter().map(|(_, step)| *step).max();
            let all = [Some(attempt.reached), Some(proven.end), furthest];
            attempt.reached = all.into_iter().flatten().max().unwrap_or_default();
        }
        if let Some(leg) = self.lineage.get_mut(n) {
            leg.to = Some(proven.end);
            leg.proved = true;
            leg.steps = proven.steps;
            leg.skipped = proven.skipped;
            leg.again = proven.again;
            leg.retold = proven.retold;
            leg.thrown_away = proven.thrown_away;
            leg.tail = proven.tail;
        }
    }

    pub(crate) fn text(&self, style: Style) -> String {
        let state = match self.closed {
            None => "open".to_owned(),
            Some(version) => format!("closed by version {version}"),
        };
        let others = self.attempts.len() - self.lineage.len();
        let others = match others {
            0 => String::new(),
            n => format!("; {} no part in the final model", verb(n as u64)),
        };
        let mut text = fields(&[
            ("root", self.root.clone()),
            ("job", format!("{}, {state}", self.name())),
            (
                "lineage",
                format!("{}{others}", count(self.lineage.len() as u64, "attempt")),
            ),
        ]);
        let rows: Vec<Vec<String>> = self.lineage.iter().map(LegReport::row).collect();
        let header = [
            "ATTEMPT",
            "FROM",
            "TO",
            "WORLD",
            "STEPS",
            "SKIPPED",
            "RESTARTED FROM",
            "PROVED",
        ];
        text.push_str(&table(style, &header, &rows));
        for leg in self.lineage.iter().filter(|leg| !leg.tail.is_empty()) {
            let tail: Vec<_> = leg
                .tail
                .iter()
                .map(|(c, step)| format!("{c} at {step}"))
                .collect();
            let line = format!(
                "attempt {} ends unevenly: what is behind step {} is not proved; further are coordinates {}\n",
                leg.attempt,
                self.to,
                tail.join(", ")
            );
            text.push_str(&style.yellow(&line));
        }
        let verdict = match &self.contradiction {
            None => style.green(&format!(
                "proved: steps {}, {} in all, each to every data coordinate exactly once, in order, \
                 with the bytes that the log names",
                range(self.from, self.to),
                self.steps
            )),
            Some(why) => style.red(&format!("NOT PROVED: {why}")),
        };
        text.push_str(&verdict);
        text
    }
}

fn verb(number: u64) -> String {
    match number {
        1 => "1 attempt has".to_owned(),
        n => format!("{n} attempts have"),
    }
}

impl LegReport {
    fn row(&self) -> Vec<String> {
        let restarted = self.restarted_from.map_or("-".to_owned(), |parent| {
            format!("attempt {}, step {}", parent.attempt, parent.step)
        });
        vec![
            self.attempt.to_string(),
            self.from.to_string(),
            self.to.map_or("-".to_owned(), |to| to.to_string()),
            self.dp_size.to_string(),
            self.steps.to_string(),
            self.skipped.to_string(),
            restarted,
            if self.proved { "yes" } else { "no" }.to_owned(),
        ]
    }
}
