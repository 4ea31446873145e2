//! The ledger of what this node's ranks received, stored object by object: every `LEDGER_STEPS` steps,
//! before each mark, when a rank is gone, and at the end.
//!
//! Before a mark: the mark is answered only when all that the rank received is in the store, so that a
//! proof has no hole below a restart point. After a daemon's death its successor reads from the
//! store's indexes what lies between the last ledger and where each rank stands, beside all else, and
//! says so. Only marks of ranks with such a hole wait for it.

mod attempt;
mod book;
mod holes;
mod recall;
mod stored;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::guards;
use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::keys;
use batchweave_core::proof::{LEDGER_ENTRIES_MAX, Ledger, LedgerEntry, ReaderCoverage};
use batchweave_log::Log;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::context::Ticks;
use crate::job::deliveries::{Delivery, Kept};
use crate::job::marks::put;
use crate::job::membership::Member;
use crate::node::{Hub, hex};
use attempt::Attempt;
use book::{Hole, reader};
use holes::Reader;
use recall::{Filled, Recall, Window};
use stored::Stored;

/// Reports taken at a time: those of one step of all ranks make one object.
const BATCH: usize = 4096;
/// Longest time until a report is stored.
const PERIOD: Duration = Duration::from_mins(5);
/// Limit of the objects kept while the store refuses them; at the limit the keeper takes no more reports.
const UNSAVED_MAX: usize = 64;
/// A longer hole is not read from indexes: something else is wrong.
const HOLE_MAX: u64 = 1 << 16;
/// Longest pause before stored ledgers are read again, or full ones put, after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Job, incarnation, attempt.
type BookKey = (JobName, Version, AttemptNo);

/// A mark that waits until all that its rank received is stored.
struct Waiting {
    key: BookKey,
    reader: Reader,
    kept: Kept,
}

/// Keeps the ledgers of all attempts on this node.
struct Keeper {
    hub: Arc<Hub>,
    attempts: BTreeMap<BookKey, Attempt>,
    recall: Recall,
    /// Marks of ranks with a hole.
    waiting: Vec<Waiting>,
    /// Of the next object.
    number: u64,
    unsaved: VecDeque<(String, Bytes)>,
}

/// What a batch of reports asks for.
#[derive(Default)]
struct Asked {
    flush: Vec<BookKey>,
    marks: Vec<Waiting>,
}

fn key(member: &Member) -> BookKey {
    (member.job.clone(), member.opened, member.attempt)
}

/// Keeps ledgers until `finish`, reading by `log` what earlier daemons did not store; then stores what
/// is left and fills the holes that are known.
pub(crate) async fn keep(
    hub: Arc<Hub>,
    log: Log,
    mut deliveries: mpsc::Receiver<Delivery>,
    finish: CancellationToken,
) {
    let mut keeper = Keeper {
        recall: Recall::start(log, hub.context.clone(), hub.stop.clone()),
        hub,
        attempts: BTreeMap::new(),
        waiting: Vec::new(),
        number: 0,
        unsaved: VecDeque::new(),
    };
    let mut ticks = Ticks::new(&keeper.hub.context, PERIOD);
    let context = keeper.hub.context.clone();
    loop {
        let mut batch = Vec::new();
        let received = tokio::select! {
            biased;
            received = deliveries.recv_many(&mut batch, BATCH) => received,
            filled = keeper.recall.filled() => {
                keeper.note_filled(filled).await;
                continue;
            }
            () = finish.cancelled() => break,
            () = ticks.tick(&context) => {
                keeper.flush_all().await;
                continue;
            }
        };
        if received == 0 {
            break;
        }
        keeper.take(batch).await;
    }
    keeper.flush_all().await;
    while keeper.recall.busy {
        let filled = keeper.recall.filled().await;
        keeper.note_filled(filled).await;
    }
}

impl Keeper {
    async fn take(&mut self, batch: Vec<Delivery>) {
        self.make_room().await;
        let mut asked = Asked::default();
        self.doubt_stored();
        for delivery in batch {
            self.note(delivery, &mut asked).await;
        }
        let due = self.attempts.iter().filter(|(_, a)| a.book.is_due());
        asked.flush.extend(due.map(|(key, _)| key.clone()));
        asked.flush.sort();
        asked.flush.dedup();
        for key in &asked.flush {
            self.flush(key).await;
        }
        self.ask();
        self.waiting.append(&mut asked.marks);
        self.answer();
    }

    /// Another daemon may have told of a rank after the stored objects were read for a rank that came
    /// earlier: they are read once per batch of reports, when a rank in it is new here.
    fn doubt_stored(&mut self) {
        if guards::trusts_cached_ledgers() {
            return;
        }
        for attempt in self.attempts.values_mut() {
            attempt.stored = None;
        }
    }

    async fn note(&mut self, delivery: Delivery, asked: &mut Asked) {
        match delivery {
            Delivery::Began {
                member, next_step, ..
            } => self.begin(&member, next_step, asked).await,
            Delivery::Step {
                member,
                step,
                concluded: true,
                ..
            } if self.attempt(&member).book.is_told(&member, step) => {}
            Delivery::Step {
                member, step, crcs, ..
            } => {
                if !self.attempt(&member).book.knows(&member) {
                    // The report of its beginning was lost.
                    self.begin(&member, step, asked).await;
                }
                let hole = self.attempt(&member).book.step(&member, step, &crcs);
                self.lacks(hole);
            }
            Delivery::Marked { member, kept, .. } => {
                let (key, reader) = (key(&member), reader(&member));
                asked.flush.push(key.clone());
                asked.marks.push(Waiting { key, reader, kept });
            }
            Delivery::Ended { member, .. } => {
                self.attempt(&member).end(&member);
                asked.flush.push(key(&member));
            }
        }
    }

    async fn begin(&mut self, member: &Arc<Member>, next_step: Step, asked: &Asked) {
        let gone = asked.flush.contains(&key(member));
        if gone && !guards::skips_flush_on_return() {
            // It may be back from just now.
            self.flush(&key(member)).await;
        }
        let told = self.told(member).await.unwrap_or(next_step);
        let book = &mut self.attempt(member).book;
        let hole = book.begin(member, next_step, told);
        self.lacks(hole);
    }

    fn attempt(&mut self, member: &Arc<Member>) -> &mut Attempt {
        let key = key(member);
        if !self.attempts.contains_key(&key) {
            // Nobody comes back to an attempt that another one has followed.
            let followed = |old: &BookKey| (&old.0, old.1) == (&key.0, key.1) && old.2 < key.2;
            self.attempts
                .retain(|old, attempt| !followed(old) || !attempt.is_over());
        }
        let new = || Attempt::new(Arc::clone(member));
        self.attempts.entry(key).or_insert_with(new)
    }

    /// How far ledgers tell of a rank that is new here; waits while the store fails. `None` when they
    /// can't be read: then nothing is told a second time, and a proof will find the hole.
    async fn told(&mut self, member: &Arc<Member>) -> Option<Step> {
        if self.attempt(member).book.knows(member) {
            return Some(member.start);
        }
        let (store, stream) = (self.hub.store.clone(), self.hub.stream.stream_id);
        let mut pause = Duration::from_millis(200);
        loop {
            if let Some(told) = self.attempt(member).told(member) {
                return Some(told);
            }
            match Stored::list(store.as_ref(), stream, member).await {
                Ok(stored) => self.attempt(member).stored = Some(stored),
                Err(why) if why.kind.is_transient() => {
                    tracing::warn!(%why, "cannot read the stored ledgers of a rank; retrying");
                    let context = &self.hub.context;
                    context.sleep(context.jittered(pause)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(why) => {
                    tracing::warn!(
                        job = %member.job, attempt = member.attempt, dp_rank = member.dp_rank, %why,
                        "cannot read ledgers: deliveries that an earlier daemon did not record will be \
                         missing from the proof"
                    );
                    return None;
                }
            }
        }
    }

    /// Notes steps that are to be read from the store's indexes.
    fn lacks(&mut self, hole: Option<Hole>) {
        let Some(hole) = hole else { return };
        if hole.steps.end - hole.steps.start > HOLE_MAX {
            let why = format!("more than {HOLE_MAX} steps");
            return self.leave(&hole, &why);
        }
        let member = Arc::clone(&hole.member);
        self.attempt(&member).lacks(hole);
    }

    /// Has the next steps of some attempt read, unless a read is under way.
    fn ask(&mut self) {
        if self.recall.busy {
            return;
        }
        let lacking = self.attempts.iter().find(|(_, a)| !a.holes.is_empty());
        if let Some((key, attempt)) = lacking {
            let (key, holes) = (key.clone(), attempt.holes.window());
            self.recall.ask(Window { key, holes });
        }
    }

    async fn note_filled(&mut self, filled: Filled) {
        let Filled {
            window: Window { key, holes },
            entries,
            left,
        } = filled;
        if let Some(attempt) = self.attempts.get_mut(&key) {
            attempt.holes.done(&holes);
            for entry in entries {
                self.hub.metrics.ledger_recalled.inc_by(entry.received());
                attempt.book.recalled(entry);
            }
        }
        for (hole, why) in left {
            self.leave(&hole, &why);
        }
        self.ask();
        self.flush(&key).await;
        self.answer();
    }

    /// Answers marks of ranks without a hole.
    fn answer(&mut self) {
        let stored = self.unsaved.is_empty() || guards::confirms_mark_without_ledger();
        let attempts = &self.attempts;
        self.waiting.retain(|mark| {
            let attempt = attempts.get(&mark.key);
            let waits = attempt.is_some_and(|a| a.holes.first(mark.reader).is_some());
            if !waits {
                mark.kept.tell(stored);
            }
            waits
        });
    }

    /// A hole stays: logged, counted, and found by whoever proves the run.
    fn leave(&self, hole: &Hole, why: &str) {
        self.hub.metrics.ledger_holes.inc();
        let Hole { member, steps } = hole;
        tracing::warn!(
            job = %member.job, attempt = member.attempt, dp_rank = member.dp_rank,
            from = steps.start, to = steps.end, why,
            "the ledger has a hole: the run can't be proved over these steps"
        );
    }

    async fn flush_all(&mut self) {
        let keys: Vec<BookKey> = self.attempts.keys().cloned().collect();
        for key in keys {
            self.flush(&key).await;
        }
        self.save().await;
    }

    /// Stores what was told of an attempt.
    async fn flush(&mut self, key: &BookKey) {
        let Some(attempt) = self.attempts.get_mut(key) else {
            return;
        };
        let member = Arc::clone(&attempt.member);
        let entries = attempt.book.take();
        for some in entries.chunks(LEDGER_ENTRIES_MAX) {
            let told = self.attempt(&member).tell(some);
            self.add(&member, some.to_vec(), told);
        }
        self.save().await;
    }

    fn add(&mut self, member: &Member, entries: Vec<LedgerEntry>, told: Vec<ReaderCoverage>) {
        let node = hex(&self.hub.instance);
        let (job, opened, attempt) = (&member.job, member.opened, member.attempt);
        let ledger = Ledger {
            format: 1,
            stream: self.hub.stream.stream_id,
            job: job.clone(),
            opened,
            attempt,
            id: member.id,
            node: node.clone(),
            entries,
            told,
        };
        let key = keys::ledger(job, opened, attempt, ledger.first(), &node, self.number);
        self.number += 1;
        self.unsaved.push_back((key, ledger.to_json().into()));
    }

    /// Waits until the store takes what waits for it. Reports are lost once their queue is full, and
    /// what is lost is a hole, read from the indexes later. An object that is given up is not: later
    /// ones say that all before them is told.
    async fn make_room(&mut self) {
        while self.unsaved.len() >= UNSAVED_MAX {
            self.save().await;
            if !self.unsaved.is_empty() {
                let context = &self.hub.context;
                context.sleep(context.jittered(PAUSE_MAX)).await;
            }
        }
    }

    /// Stores what is not stored yet, the oldest first; stops at the first that the store refuses.
    async fn save(&mut self) {
        while let Some((key, body)) = self.unsaved.front() {
            if let Err(why) = put(&self.hub, key, body.clone()).await {
                tracing::warn!(key, %why, "a ledger could not be stored; trying again with the next");
                return self.count("late");
            }
            self.unsaved.pop_front();
            self.count("stored");
        }
    }

    fn count(&self, outcome: &str) {
        let ledgers = &self.hub.metrics.ledgers;
        ledgers.with_label_values(&[outcome]).inc();
    }
}
