//! The ledger of what this node's ranks received, stored object by object: every `LEDGER_STEPS` steps,
//! before each mark, when a rank is gone, and at the end.
//!
//! Before a mark: the mark is answered only when all that the rank received is in the store, so that a
//! proof has no hole below a restart point. After a daemon's death its successor tells from the
//! store's indexes what lies between the last ledger and where each rank stands, and says so.

mod book;
mod recall;
mod stored;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{AttemptNo, JobName, Step, Version};
use batchweave_core::keys;
use batchweave_core::lifecycle::{LEDGER_ENTRIES_MAX, LEDGER_STEPS, Ledger, LedgerEntry, Told};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::deliveries::{Delivery, Kept};
use crate::hub::{Hub, hex};
use crate::marks::put;
use crate::member::Member;
use book::{Book, Hole, reader};
use recall::Recall;
use stored::Stored;

/// Reports taken at a time: those of one step of all ranks make one object.
const BATCH: usize = 4096;
/// What was told is stored at least so often.
const PERIOD: Duration = Duration::from_mins(5);
/// Objects kept while the store refuses them; older ones are given up.
const UNSAVED_MAX: usize = 64;
/// A longer hole is not told from indexes: something else is wrong.
const HOLE_MAX: u64 = 1 << 16;
const LOOK_TRIES: u32 = 5;

/// Job, incarnation, attempt.
type BookKey = (JobName, Version, AttemptNo);

struct Attempt {
    book: Book,
    member: Arc<Member>,
    /// What other daemons' objects tell; read when a rank comes that is new here.
    stored: Option<Stored>,
    /// How far this daemon's own objects tell, also of ranks that are gone.
    told: BTreeMap<(u32, Option<u32>), Step>,
}

/// Keeps the ledgers of all attempts on this node.
struct Keeper {
    hub: Arc<Hub>,
    attempts: BTreeMap<BookKey, Attempt>,
    recall: Recall,
    /// Of the next object.
    number: u64,
    unsaved: VecDeque<(String, Bytes)>,
}

/// What a batch of reports asks for.
#[derive(Default)]
struct Asked {
    flush: Vec<BookKey>,
    kept: Vec<(BookKey, Kept)>,
}

fn key(member: &Member) -> BookKey {
    (member.job.clone(), member.opened, member.attempt)
}

/// Keeps ledgers until `finish`, then stores what is left.
pub(crate) async fn keep(
    hub: Arc<Hub>,
    mut deliveries: mpsc::Receiver<Delivery>,
    finish: CancellationToken,
) {
    let mut keeper = Keeper {
        recall: Recall::new(hub.store.clone()),
        hub,
        attempts: BTreeMap::new(),
        number: 0,
        unsaved: VecDeque::new(),
    };
    let mut tick = tokio::time::interval(PERIOD);
    loop {
        let mut batch = Vec::new();
        let received = tokio::select! {
            biased;
            received = deliveries.recv_many(&mut batch, BATCH) => received,
            () = finish.cancelled() => break,
            _ = tick.tick() => {
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
}

impl Attempt {
    /// Notes entries that are going to be stored; how far all objects with these tell, by reader.
    fn tell(&mut self, entries: &[LedgerEntry]) -> Vec<Told> {
        for entry in entries {
            let to = self.told.entry(entry.reader()).or_default();
            *to = entry.to.max(*to);
        }
        let told = self.told.iter();
        told.map(|(&(dp_rank, rank), &to)| Told { dp_rank, rank, to })
            .collect()
    }
}

impl Keeper {
    async fn take(&mut self, batch: Vec<Delivery>) {
        let mut asked = Asked::default();
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
        for (_, kept) in asked.kept {
            kept.tell(self.unsaved.is_empty());
        }
    }

    async fn note(&mut self, delivery: Delivery, asked: &mut Asked) {
        match delivery {
            Delivery::Began {
                member, next_step, ..
            } => {
                if asked.flush.contains(&key(&member)) {
                    // It may be back from just now.
                    self.flush(&key(&member)).await;
                }
                let told = self.told(&member).await.unwrap_or(next_step);
                let book = &mut self.attempt(&member).book;
                let hole = book.begin(&member, next_step, told);
                self.fill(hole).await;
            }
            Delivery::Step {
                member, step, crcs, ..
            } => {
                let hole = self.attempt(&member).book.step(&member, step, &crcs);
                self.fill(hole).await;
            }
            Delivery::Marked { member, kept, .. } => {
                let key = key(&member);
                asked.flush.push(key.clone());
                asked.kept.push((key, kept));
            }
            Delivery::Ended { member, .. } => {
                self.attempt(&member).book.end(&member);
                asked.flush.push(key(&member));
            }
        }
    }

    fn attempt(&mut self, member: &Arc<Member>) -> &mut Attempt {
        let key = key(member);
        if !self.attempts.contains_key(&key) {
            // Nobody comes back to an attempt that another one has followed.
            let followed = |old: &BookKey| (&old.0, old.1) == (&key.0, key.1) && old.2 < key.2;
            self.attempts
                .retain(|old, attempt| !followed(old) || !attempt.book.is_over());
        }
        self.attempts.entry(key).or_insert_with(|| Attempt {
            book: Book::default(),
            member: Arc::clone(member),
            stored: None,
            told: BTreeMap::new(),
        })
    }

    /// How far stored ledgers tell of a rank that is new here. `None` when they can't be read: then
    /// nothing is told a second time, and a proof will find the hole.
    async fn told(&mut self, member: &Arc<Member>) -> Option<Step> {
        if self.attempt(member).book.knows(member) {
            return Some(member.start);
        }
        let (store, stream) = (self.hub.store.clone(), self.hub.stream.stream_id);
        let mut pause = Duration::from_millis(200);
        for _ in 0..LOOK_TRIES {
            let attempt = self.attempt(member);
            if let Some(stored) = &attempt.stored {
                let own = attempt.told.get(&reader(member)).copied();
                return Some(stored.end(member).max(own.unwrap_or_default()));
            }
            match Stored::list(store.as_ref(), stream, member).await {
                Ok(stored) => {
                    attempt.stored = Some(stored);
                    continue;
                }
                Err(why) => tracing::debug!(%why, "ledgers can't be read; trying again"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        tracing::warn!(
            job = %member.job, attempt = member.attempt, dp_rank = member.dp_rank,
            "ledgers can't be read: what an earlier daemon delivered and did not store stays untold"
        );
        None
    }

    /// Tells the steps of a hole from the store's indexes, an object's worth at a time. What can't be
    /// told, since it was reclaimed, does not keep back what can.
    async fn fill(&mut self, hole: Option<Hole>) {
        let Some(Hole { member, steps }) = hole else {
            return;
        };
        if steps.end - steps.start > HOLE_MAX {
            let why = format!("more than {HOLE_MAX} steps");
            return self.leave(&member, &steps, &why);
        }
        let mut from = steps.start;
        let watermark = self.recall.watermark().await.unwrap_or(from);
        if from < watermark {
            let gone = from..watermark.min(steps.end);
            self.leave(&member, &gone, "they are below the watermark");
            from = gone.end;
        }
        while from < steps.end {
            let piece = from..steps.end.min(from + LEDGER_STEPS);
            from = piece.end;
            if let Err(why) = self.fill_piece(&member, piece.clone()).await {
                self.leave(&member, &piece, &why);
            }
        }
    }

    /// A hole stays: said aloud, and found by whoever proves the run.
    fn leave(&self, member: &Member, steps: &Range<Step>, why: &str) {
        self.hub.metrics.ledger_holes.inc();
        tracing::warn!(
            job = %member.job, attempt = member.attempt, dp_rank = member.dp_rank,
            from = steps.start, to = steps.end, why,
            "the ledger has a hole: the run can't be proved over these steps"
        );
    }

    async fn fill_piece(&mut self, member: &Arc<Member>, steps: Range<Step>) -> Result<(), String> {
        let Some(entry) = self
            .recall
            .tell(member, steps)
            .await
            .map_err(|why| why.to_string())?
        else {
            return Ok(());
        };
        self.hub.metrics.ledger_recalled.inc_by(entry.received());
        let book = &mut self.attempt(member).book;
        book.recalled(entry);
        if book.is_due() {
            self.flush(&key(member)).await;
        }
        Ok(())
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
        let entries = attempt.book.take();
        if attempt.book.is_over() {
            // Who comes back may have been elsewhere meanwhile.
            attempt.stored = None;
        }
        let member = Arc::clone(&attempt.member);
        for some in entries.chunks(LEDGER_ENTRIES_MAX) {
            let told = self.attempt(&member).tell(some);
            self.add(&member, some.to_vec(), told);
        }
        self.save().await;
    }

    fn add(&mut self, member: &Member, entries: Vec<LedgerEntry>, told: Vec<Told>) {
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
        if self.unsaved.len() > UNSAVED_MAX {
            self.unsaved.pop_front();
            self.count("lost");
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
