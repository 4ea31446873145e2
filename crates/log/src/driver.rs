//! The commit task: takes finished uploads in order, asks the policy when to commit, and groups
//! what is ready into one entry. It runs on a task of its own that nobody cancels (pitfall P8).

use std::collections::VecDeque;
use std::time::Duration;

use batchweave_core::commit::{Action, Event, Policy};
use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Epoch, Seq, Step, Version};
use batchweave_core::limits::{ENTRY_BYTES_MAX, ENTRY_TGBS_MAX};
use batchweave_core::tgb::TgbRecord;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::LogError;
use crate::producer::{Commit, Producer};

/// What becomes visible together: all TGBs of one object (or of the objects of one TGB), durable
/// in the store, and the cursor after them.
#[derive(Debug, Clone)]
pub struct CommitItem {
    /// The TGBs in order of sequence.
    pub tgbs: Vec<TgbRecord>,
    /// The cursor after the last of them.
    pub cursor: Cursor,
}

/// How the commit task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitEnd {
    /// The queue was closed and everything in it is committed.
    Drained {
        /// The next sequence number.
        next_seq: Seq,
    },
    /// The same, and the producer has said that there is no more.
    Finished {
        /// The number of its TGBs.
        tgbs: Seq,
    },
    /// A newer epoch took over; what was not committed is void.
    Fenced {
        /// The newer epoch.
        by: Epoch,
        /// Who opened it.
        instance: String,
    },
    /// The stream was sealed.
    Sealed,
}

/// How far the commit task has come; a watch value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Committed {
    /// Records won.
    pub records: u64,
    /// Versions lost to others.
    pub lost: u64,
    /// The next sequence number.
    pub next_seq: Seq,
    /// The last version won.
    pub version: Option<Version>,
    /// The head after it.
    pub next_step: Step,
    /// Latency of the last commit, from ready to visible.
    pub latency: Duration,
}

/// Bounds of the commit task.
#[derive(Debug, Clone, Copy)]
pub struct DriverOptions {
    /// Items that may wait; submitting more waits.
    pub queue: usize,
    /// TGBs in one entry at most.
    pub tgbs_per_entry: usize,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self {
            queue: 64,
            tgbs_per_entry: 256,
        }
    }
}

enum Message {
    Item(CommitItem),
    Finish,
}

/// The way to the commit task. Dropping it lets the task commit what it has and end.
#[derive(Debug)]
pub struct CommitQueue {
    send: mpsc::Sender<Message>,
    progress: watch::Receiver<Committed>,
    task: JoinHandle<Result<(CommitEnd, Producer), LogError>>,
}

impl CommitQueue {
    /// Hands over an item; waits while the queue is full. False when the task has ended: `join`
    /// says why.
    pub async fn submit(&self, item: CommitItem) -> bool {
        self.send.send(Message::Item(item)).await.is_ok()
    }

    /// Progress, to be read at any time.
    pub fn progress(&self) -> watch::Receiver<Committed> {
        self.progress.clone()
    }

    /// Closes the queue and waits for everything in it; with `finish`, the producer then says that
    /// it has no more.
    pub async fn close(self, finish: bool) -> Result<(CommitEnd, Producer), LogError> {
        if finish {
            // A task that has ended says why below.
            let _ = self.send.send(Message::Finish).await;
        }
        drop(self.send);
        match self.task.await {
            Ok(end) => end,
            Err(e) => Err(LogError::Stopped(e.to_string())),
        }
    }
}

struct Driver<P> {
    producer: Producer,
    policy: P,
    options: DriverOptions,
    items: VecDeque<(CommitItem, Instant)>,
    began: Instant,
    finish: bool,
    closed: bool,
    progress: watch::Sender<Committed>,
}

impl Producer {
    /// Starts the commit task.
    pub fn spawn(self, policy: impl Policy + 'static, options: DriverOptions) -> CommitQueue {
        let (send, receive) = mpsc::channel(options.queue.max(1));
        let start = Committed {
            next_seq: self.next_seq(),
            ..Committed::default()
        };
        let (progress, watcher) = watch::channel(start);
        let driver = Driver {
            producer: self,
            policy,
            options,
            items: VecDeque::new(),
            began: Instant::now(),
            finish: false,
            closed: false,
            progress,
        };
        CommitQueue {
            send,
            progress: watcher,
            task: tokio::spawn(driver.run(receive)),
        }
    }
}

impl<P: Policy> Driver<P> {
    async fn run(
        mut self,
        mut receive: mpsc::Receiver<Message>,
    ) -> Result<(CommitEnd, Producer), LogError> {
        let mut wait: Option<Instant> = None;
        loop {
            if self.items.is_empty() && self.closed {
                return self.end().await;
            }
            let timer = async {
                match wait {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let room = self.items.len() < self.options.queue && !self.closed;
            let event = tokio::select! {
                biased;
                message = receive.recv(), if room => self.take(message),
                () = timer => Some(Event::Timer),
            };
            if let Some(event) = event {
                match self.advance(event).await? {
                    Next::Wait(at) => wait = at,
                    Next::End(end) => return Ok((end, self.producer)),
                }
            }
        }
    }

    fn take(&mut self, message: Option<Message>) -> Option<Event> {
        match message {
            Some(Message::Item(item)) => self.items.push_back((item, Instant::now())),
            Some(Message::Finish) => self.finish = true,
            None => self.closed = true,
        }
        (!self.items.is_empty()).then_some(Event::Ready)
    }

    /// Asks the policy and acts until it wants to wait.
    async fn advance(&mut self, first: Event) -> Result<Next, LogError> {
        let mut event = first;
        loop {
            match self.policy.step(self.began.elapsed(), event) {
                Action::Idle if self.items.is_empty() => return Ok(Next::Wait(None)),
                Action::Idle => event = Event::Ready,
                Action::Wait(time) => return Ok(Next::Wait(Some(Instant::now() + time))),
                Action::Put { .. } => match self.put().await? {
                    Ok(next) => event = next,
                    Err(end) => return Ok(Next::End(end)),
                },
            }
        }
    }

    /// One try with the longest prefix of the queue that fits an entry.
    async fn put(&mut self) -> Result<Result<Event, CommitEnd>, LogError> {
        let count = self.prefix();
        let Some((last, _)) = self.items.get(count.saturating_sub(1)) else {
            return Ok(Ok(Event::Won));
        };
        let cursor = last.cursor.clone();
        let tgbs = self
            .items
            .iter()
            .take(count)
            .flat_map(|(i, _)| i.tgbs.clone())
            .collect();
        match self.producer.try_commit(tgbs, cursor).await? {
            Commit::Committed { version, next_step } => {
                let ready = self.items.front().map_or(self.began, |(_, ready)| *ready);
                self.items.drain(..count);
                let next_seq = self.producer.next_seq();
                self.progress.send_modify(|p| {
                    p.records += 1;
                    p.version = Some(version);
                    p.next_seq = next_seq;
                    p.next_step = next_step;
                    p.latency = ready.elapsed();
                });
                Ok(Ok(Event::Won))
            }
            Commit::Lost => {
                self.progress.send_modify(|p| p.lost += 1);
                Ok(Ok(Event::Lost { foreign: 1 }))
            }
            Commit::Fenced { by, instance } => Ok(Err(CommitEnd::Fenced { by, instance })),
            Commit::Sealed => Ok(Err(CommitEnd::Sealed)),
        }
    }

    /// How many items fit one entry; at least one, for an item that is too large must be refused
    /// aloud.
    fn prefix(&self) -> usize {
        let most = self.options.tgbs_per_entry.clamp(1, ENTRY_TGBS_MAX);
        let (mut tgbs, mut bytes) = (0, 0);
        let mut count = 0;
        for (item, _) in &self.items {
            tgbs += item.tgbs.len();
            bytes += serde_json::to_vec(&item.tgbs).map_or(ENTRY_BYTES_MAX, |b| b.len());
            // A cursor and the entry's own fields take the rest.
            if count > 0 && (tgbs > most || bytes > ENTRY_BYTES_MAX / 2) {
                break;
            }
            count += 1;
        }
        count
    }

    async fn end(mut self) -> Result<(CommitEnd, Producer), LogError> {
        let mut event = Event::Ready;
        while self.finish {
            match self.policy.step(self.began.elapsed(), event) {
                Action::Idle => event = Event::Ready,
                Action::Wait(time) => {
                    tokio::time::sleep(time).await;
                    event = Event::Timer;
                }
                Action::Put { .. } => match self.producer.try_finish().await? {
                    Commit::Committed { .. } => break,
                    Commit::Lost => event = Event::Lost { foreign: 1 },
                    Commit::Fenced { by, instance } => {
                        return Ok((CommitEnd::Fenced { by, instance }, self.producer));
                    }
                    Commit::Sealed => return Ok((CommitEnd::Sealed, self.producer)),
                },
            }
        }
        self.producer.log_mut().settle_snapshots().await;
        let next_seq = self.producer.next_seq();
        let end = if self.finish {
            CommitEnd::Finished { tgbs: next_seq }
        } else {
            CommitEnd::Drained { next_seq }
        };
        Ok((end, self.producer))
    }
}

enum Next {
    Wait(Option<Instant>),
    End(CommitEnd),
}
