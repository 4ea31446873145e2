//! The ledger of what this node's ranks received and what they reported of it, stored as objects: every `LEDGER_STEPS` steps, before each
//! mark, when a rank disconnects, and at the end.
//!
//! A mark is answered only when all that the rank received before it is stored, so that a proof has no hole
//! below a restart point. After the death of a daemon its successor reads the steps between the last ledger and
//! the position of each rank from the store's indexes, in the background. Only marks of ranks with such a hole
//! wait for it. So do the daemons of the next attempt where none came back: their marks wait too, since a watermark
//! that follows from them lets the data be deleted.
//!
//! - `attempt` is the ledger of one attempt: `book` has its entries, `holes` the steps to be recalled;
//! - `stored` reads what earlier daemons recorded, `lineage` finds the holes of earlier attempts, `recall` reads indexes;
//!   `filling` records what they hold.

mod attempt;
mod book;
mod filling;
mod holes;
mod lineage;
mod recall;
mod stored;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::guards;
use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::keys;
use batchweave_core::proof::{LEDGER_ENTRIES_MAX, Ledger, LedgerEntry, ReportedStates};
use batchweave_log::Log;
use batchweave_store::Backoff;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::context::Ticks;
use crate::job::deliveries::{Delivery, ReceiptSender};
use crate::job::membership::Member;
use crate::job::states::{Receipts, Taken};
use crate::resources::Resources;
use attempt::Attempt;
use book::reader;
#[cfg(test)]
pub(crate) use book::tests::member;
use holes::Reader;
use recall::Recall;
use stored::Stored;

/// Reports taken at a time: the reports of one step of all ranks are stored in one object.
const BATCH: usize = 4096;
/// Longest time until a report is stored.
const PERIOD: Duration = Duration::from_mins(5);
/// Limit of the objects kept while the store refuses them; at the limit the keeper takes no more reports.
const UNSAVED_MAX: usize = 64;
/// Longest pause before reading or writing ledgers is retried.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The job, its incarnation, and the attempt.
type BookKey = (JobName, Version, AttemptNo);

/// A mark that waits until all that its rank received is stored.
struct Waiting {
    key: BookKey,
    reader: Reader,
    receipt: ReceiptSender,
}

/// Keeps the ledgers of all attempts on this node.
struct Keeper {
    resources: Arc<Resources>,
    attempts: BTreeMap<BookKey, Attempt>,
    recall: Recall,
    /// Marks of ranks with a hole.
    waiting: Vec<Waiting>,
    /// Coordinates whose share of the earlier attempts' ledgers was checked, or is to be.
    inherited: BTreeSet<(BookKey, u32)>,
    /// Members whose share is not checked yet.
    lineages: Vec<Arc<Member>>,
    /// The number of the next object.
    number: u64,
    unsaved: VecDeque<Unsaved>,
}

/// An object that is not stored yet.
struct Unsaved {
    key: String,
    body: Bytes,
    /// The reports that are stored with it, and the number of the first object that has none of their values.
    receipts: Receipts,
    values: u64,
}

/// The flushes and answers that a batch of reports requires.
#[derive(Default)]
struct Required {
    flush: Vec<BookKey>,
    marks: Vec<Waiting>,
}

fn key(member: &Member) -> BookKey {
    (member.job.clone(), member.opened, member.attempt)
}

/// Whether `earlier` is an earlier attempt of the same incarnation of the job.
fn precedes(earlier: &BookKey, later: &BookKey) -> bool {
    (&earlier.0, earlier.1) == (&later.0, later.1) && earlier.2 < later.2
}

/// Keeps ledgers until `finish`, and reads by `log` what earlier daemons did not record. At the end stores what
/// is left and fills the known holes.
pub(crate) async fn keep(
    resources: Arc<Resources>,
    log: Log,
    mut deliveries: mpsc::Receiver<Delivery>,
    finish: CancellationToken,
) {
    let mut keeper = Keeper {
        recall: Recall::start(log, Arc::clone(&resources)),
        resources,
        attempts: BTreeMap::new(),
        waiting: Vec::new(),
        inherited: BTreeSet::new(),
        lineages: Vec::new(),
        number: 0,
        unsaved: VecDeque::new(),
    };
    let mut ticks = Ticks::new(&keeper.resources.context, PERIOD);
    let context = keeper.resources.context.clone();
    loop {
        let mut batch = Vec::new();
        let received = tokio::select! {
            biased;
            received = deliveries.recv_many(&mut batch, BATCH) => received,
            done = keeper.recall.done() => {
                keeper.note_done(done).await;
                continue;
            }
            () = finish.cancelled() => break,
            () = ticks.tick(&context) => {
                keeper.flush_all().await;
                keeper.recall_next();
                continue;
            }
        };
        if received == 0 {
            break;
        }
        keeper.take(batch).await;
    }
    keeper.flush_all().await;
    keeper.recall_next();
    while keeper.recall.busy {
        let done = keeper.recall.done().await;
        keeper.note_done(done).await;
    }
}

impl Keeper {
    async fn take(&mut self, batch: Vec<Delivery>) {
        self.make_room().await;
        let mut asked = Required::default();
        self.forget_stored();
        for delivery in batch {
            self.note(delivery, &mut asked).await;
        }
        let due = self.attempts.iter().filter(|(_, a)| a.book.is_due());
        asked.flush.extend(due.map(|(key, _)| key.clone()));
        asked.flush.extend(self.resources.states.attempts(true));
        asked.flush.extend(self.resources.values.due());
        asked.flush.sort();
        asked.flush.dedup();
        for key in &asked.flush {
            self.flush(key).await;
        }
        self.recall_next();
        self.waiting.append(&mut asked.marks);
        self.answer();
    }

    /// Forgets the stored objects, so that they are read again for each batch of reports with a new rank:
    /// another daemon may have recorded it after they were read.
    fn forget_stored(&mut self) {
        if guards::trusts_cached_ledgers() {
            return;
        }
        for attempt in self.attempts.values_mut() {
            attempt.stored = None;
        }
    }

    async fn note(&mut self, delivery: Delivery, asked: &mut Required) {
        match delivery {
            Delivery::Began {
                member, next_step, ..
            } => self.begin(&member, next_step, asked).await,
            Delivery::Step {
                member,
                step,
                concluded: true,
                ..
            } if self.attempt(&member).book.is_recorded(&member, step) => {}
            Delivery::Step {
                member, step, crcs, ..
            } => {
                if !self.attempt(&member).book.knows(&member) {
                    // The report that it began was lost.
                    self.begin(&member, step, asked).await;
                }
                let hole = self.attempt(&member).book.step(&member, step, &crcs);
                self.add_hole(hole);
            }
            Delivery::Marked {
                member, receipt, ..
            } => {
                let (key, reader) = (key(&member), reader(&member));
                asked.flush.push(key.clone());
                asked.marks.push(Waiting {
                    key,
                    reader,
                    receipt,
                });
            }
            Delivery::StatesDue => {}
            Delivery::Ended { member, .. } => {
                self.attempt(&member).end(&member);
                asked.flush.push(key(&member));
            }
        }
    }

    async fn begin(&mut self, member: &Arc<Member>, next_step: Step, asked: &Required) {
        let gone = asked.flush.contains(&key(member));
        if gone && !guards::skips_flush_on_return() {
            // It may have ended in this batch.
            self.flush(&key(member)).await;
        }
        let recorded = self.recorded_to(member).await.unwrap_or(next_step);
        let book = &mut self.attempt(member).book;
        let hole = book.begin(member, next_step, recorded);
        self.add_hole(hole);
        self.inherit(member).await;
    }

    fn attempt(&mut self, member: &Arc<Member>) -> &mut Attempt {
        let key = key(member);
        if !self.attempts.contains_key(&key) {
            // No rank reconnects to a superseded attempt.
            self.attempts
                .retain(|old, attempt| !precedes(old, &key) || !attempt.is_over());
        }
        let new = || Attempt::new(Arc::clone(member));
        self.attempts.entry(key).or_insert_with(new)
    }

    /// Returns the step below which ledgers record a rank that is new here; waits while the store fails. `None`
    /// when they can't be read: then nothing is recorded a second time, and a proof will find the hole.
    async fn recorded_to(&mut self, member: &Arc<Member>) -> Option<Step> {
        if self.attempt(member).book.knows(member) {
            return Some(member.start);
        }
        let (store, stream) = (
            self.resources.store.clone(),
            self.resources.stream.stream_id,
        );
        let mut backoff = Backoff::new(Duration::from_millis(200), PAUSE_MAX);
        loop {
            if let Some(recorded) = self.attempt(member).recorded_to(member) {
                return Some(recorded);
            }
            match Stored::list(store.as_ref(), stream, member).await {
                Ok(stored) => self.attempt(member).stored = Some(stored),
                Err(why) if why.kind.is_transient() => {
                    tracing::warn!(%why, "cannot read the stored ledgers of a rank; retrying");
                    let context = &self.resources.context;
                    context.sleep(context.jittered(backoff.pause())).await;
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

    async fn flush_all(&mut self) {
        let mut keys: Vec<BookKey> = self.attempts.keys().cloned().collect();
        keys.extend(self.resources.states.attempts(false));
        keys.extend(self.resources.values.attempts());
        keys.sort();
        keys.dedup();
        for key in keys {
            self.flush(&key).await;
        }
        self.save().await;
    }

    /// Stores the unsaved entries of an attempt, and the states that its ranks reported.
    async fn flush(&mut self, key: &BookKey) {
        let mut taken = if guards::confirms_mark_before_states() {
            Taken::default()
        } else {
            self.resources.states.take(key)
        };
        let attempt = self.attempts.get_mut(key);
        let entries = attempt.map(|attempt| attempt.book.take());
        let own = self.attempts.get(key).map(|attempt| &attempt.member);
        if let Some(member) = own.or(taken.member.as_ref()).map(Arc::clone) {
            let mut states = taken.ledgers.into_iter();
            for some in entries.unwrap_or_default().chunks(LEDGER_ENTRIES_MAX) {
                self.add(key, &member, some, states.next().unwrap_or_default());
            }
            for states in states {
                self.add(key, &member, &[], states);
            }
        }
        let resources = &self.resources;
        let (values, stream) = (&resources.values, resources.stream.stream_id);
        values.seal(key, stream, &resources.node_name());
        if guards::confirms_states_early() {
            resources.states.stored(&taken.receipts);
        }
        match self.unsaved.back_mut() {
            Some(last) => {
                last.receipts.append(&mut taken.receipts);
                last.values = values.next_number();
            }
            // They repeat what is stored.
            None => resources.states_stored(taken.receipts, values.next_number()),
        }
        self.save().await;
    }

    fn add(
        &mut self,
        key: &BookKey,
        member: &Member,
        entries: &[LedgerEntry],
        states: Vec<ReportedStates>,
    ) {
        let told = self.attempts.get_mut(key);
        let told = told.map(|attempt| attempt.record(entries));
        let node = self.resources.node_name();
        let (job, opened, attempt) = (&member.job, member.opened, member.attempt);
        let ledger = Ledger {
            format: Ledger::format_with(&states),
            stream: self.resources.stream.stream_id,
            job: job.clone(),
            opened,
            attempt,
            id: member.id,
            node: node.clone(),
            entries: entries.to_vec(),
            told: told.unwrap_or_default(),
            states,
        };
        let key = keys::ledger(job, opened, attempt, ledger.first(), &node, self.number);
        self.number += 1;
        self.unsaved.push_back(Unsaved {
            key,
            body: ledger.to_json().into(),
            receipts: Receipts::new(),
            values: 0,
        });
    }

    /// Waits until fewer objects are unsaved. Meanwhile reports may be lost, which makes holes that are read from
    /// indexes later. Objects are never given up: later ones claim that all before them is recorded.
    async fn make_room(&mut self) {
        while self.unsaved.len() >= UNSAVED_MAX {
            self.save().await;
            if !self.unsaved.is_empty() {
                let context = &self.resources.context;
                context.sleep(context.jittered(PAUSE_MAX)).await;
            }
        }
    }

    /// Stores the unsaved objects, the oldest first; stops at the first failure.
    async fn save(&mut self) {
        while let Some(Unsaved { key, body, .. }) = self.unsaved.front() {
            if let Err(why) = self.resources.create(key, body.clone()).await {
                tracing::warn!(key, %why, "a ledger could not be stored; retrying with the next");
                return self.count("late");
            }
            if let Some(stored) = self.unsaved.pop_front() {
                self.resources.states_stored(stored.receipts, stored.values);
            }
            self.count("stored");
        }
    }

    fn count(&self, outcome: &str) {
        let ledgers = &self.resources.metrics.ledgers;
        ledgers.with_label_values(&[outcome]).inc();
    }
}
