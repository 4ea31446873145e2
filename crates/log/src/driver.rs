//! The commit task: takes finished uploads in order, asks the policy when to commit, and groups
//! what is ready into entries. It runs on a task of its own that nobody cancels (pitfall P8).

use std::time::Duration;

use batchweave_core::commit::{Event, Policy};
use batchweave_core::ids::{Epoch, Seq, Step, Version};
use futures::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::LogError;
use crate::committer::{Committer, Next, Stop};
use crate::producer::Producer;
use crate::wants::CommitItem;

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
    /// Entries announced.
    pub announced: u64,
    /// Entries of others in records won.
    pub combined: u64,
    /// Objects under `intents/` that were none.
    pub refused_intents: u64,
    /// Whether this producer combines for others at present.
    pub leading: bool,
    /// The next sequence number.
    pub next_seq: Seq,
    /// The last version won.
    pub version: Option<Version>,
    /// The head when the last of ours was seen to be visible.
    pub next_step: Step,
    /// Latency of the last commit, from ready to known to be visible.
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
    committer: Committer,
    policy: P,
    queue: usize,
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
            committer: self.into_committer(options.tgbs_per_entry),
            policy,
            queue: options.queue.max(1),
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
        self.committer.recover().await?;
        let mut next = Next::Wait(None);
        loop {
            if self.closed && self.committer.wants.is_empty() {
                return Ok(self.end(None).await);
            }
            let event = match next {
                Next::Wait(time) => self.wait(&mut receive, time).await,
                Next::Event(event) => event,
            };
            // What has become ready meanwhile goes along.
            while !self.is_full()
                && let Ok(message) = receive.try_recv()
            {
                self.take(message);
            }
            next = match self.committer.advance(&mut self.policy, event).await? {
                Ok(next) => next,
                Err(stop) => return Ok(self.end(Some(stop)).await),
            };
            self.report();
        }
    }

    fn is_full(&self) -> bool {
        self.committer.wants.len() >= self.queue
    }

    /// Waits for more to commit, or for so long.
    async fn wait(
        &mut self,
        receive: &mut mpsc::Receiver<Message>,
        time: Option<Duration>,
    ) -> Event {
        let timer = match time {
            Some(time) => self.committer.clock().sleep(time),
            None => std::future::pending().boxed(),
        };
        tokio::select! {
            biased;
            message = receive.recv(), if !self.is_full() && !self.closed => {
                if let Some(message) = message {
                    self.take(message);
                    Event::Ready
                } else {
                    self.closed = true;
                    Event::Timer
                }
            }
            () = timer => Event::Timer,
        }
    }

    fn take(&mut self, message: Message) {
        let now = self.committer.clock().now();
        match message {
            Message::Item(item) => self.committer.wants.item(item, now),
            Message::Finish => {
                self.finish = true;
                self.committer.wants.finish(now);
            }
        }
    }

    fn report(&self) {
        let committer = &self.committer;
        let done = committer.done;
        let next_seq = committer.next_seq();
        let committed = Committed {
            records: done.records,
            lost: done.lost,
            announced: done.announced,
            combined: done.combined,
            refused_intents: committer.refused_intents(),
            leading: committer.is_leading(),
            next_seq,
            version: done.version,
            next_step: done.next_step,
            latency: done.latency,
        };
        self.progress.send_if_modified(|before| {
            let changed = *before != committed;
            *before = committed;
            changed
        });
    }

    async fn end(mut self, stop: Option<Stop>) -> (CommitEnd, Producer) {
        self.committer.end().await;
        self.report();
        let next_seq = self.committer.next_seq();
        let end = match stop {
            Some(Stop::Fenced { by, instance }) => CommitEnd::Fenced { by, instance },
            Some(Stop::Sealed) => CommitEnd::Sealed,
            Some(Stop::Finished { tgbs }) => CommitEnd::Finished { tgbs },
            None if self.finish => CommitEnd::Finished { tgbs: next_seq },
            None => CommitEnd::Drained { next_seq },
        };
        (end, Producer::from_committer(self.committer))
    }
}
