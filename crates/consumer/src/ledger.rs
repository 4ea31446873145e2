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
use batchweave_core::lifecycle::{LEDGER_ENTRIES_MAX, LEDGER_STEPS, Ledger, LedgerEntry};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::deliveries::{Delivery, Kept};
use crate::hub::{Hub, hex};
use crate::marks::put;
use crate::member::Member;
use book::{Book, Hole};
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
    stored: Option<Stored>,
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
                let attempt = self.attempt(&member);
                let told = attempt.book.end(&member);
                if let (Some(stored), Some(told)) = (&mut attempt.stored, told) {
                    // Listed before: it would have the steps since then told a second time.
                    stored.raise(&member, told);
                }
                asked.flush.push(key(&member));
            }
        }
    }

    fn attempt(&mut self, member: &Arc<Member>) -> &mut Attempt {
        self.attempts.entry(key(member)).or_insert_with(|| Attempt {
            book: Book::default(),
            member: Arc::clone(member),
            stored: None,
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
            let outcome = match &mut attempt.stored {
                Some(stored) => stored.end(store.as_ref(), stream, member).await,
                none => match Stored::list(store.as_ref(), stream, member).await {
                    Ok(stored) => {
                        let stored = none.insert(stored);
                        stored.end(store.as_ref(), stream, member).await
                    }
                    Err(why) => Err(why),
                },
            };
            match outcome {
                Ok(told) => return Some(told),
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

    /// Tells the steps of a hole from the store's indexes, an object's worth at a time.
    async fn fill(&mut self, hole: Option<Hole>) {
        let Some(hole) = hole else { return };
        let (member, steps) = (&hole.member, hole.steps.clone());
        let mut outcome = if steps.end - steps.start <= HOLE_MAX {
            Ok(())
        } else {
            Err(format!("more than {HOLE_MAX} steps"))
        };
        let pieces = steps.clone().step_by(LEDGER_STEPS as usize);
        for from in pieces {
            if outcome.is_err() {
                break;
            }
            let to = steps.end.min(from + LEDGER_STEPS);
            outcome = self.fill_piece(member, from..to).await;
        }
        if let Err(why) = outcome {
            self.hub.metrics.ledger_holes.inc();
            tracing::warn!(
                job = %member.job, attempt = member.attempt, dp_rank = member.dp_rank,
                from = steps.start, to = steps.end, why,
                "the ledger has a hole: the run can't be proved over these steps"
            );
        }
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
        let member = Arc::clone(&attempt.member);
        if attempt.book.is_over() {
            self.attempts.remove(key);
        }
        for some in entries.chunks(LEDGER_ENTRIES_MAX) {
            self.add(&member, some.to_vec());
        }
        self.save().await;
    }

    fn add(&mut self, member: &Member, entries: Vec<LedgerEntry>) {
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
