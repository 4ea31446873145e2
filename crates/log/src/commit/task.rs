//! The commit task: takes finished uploads in order, asks the policy when to commit, and groups ready
//! items into entries. It runs on a task of its own that is never cancelled (pitfall P8).

use std::time::Duration;

use batchweave_core::commit_policy::{Event, Policy};
use batchweave_core::flow_control::FlowControl;
use batchweave_core::ids::{Epoch, Seq, Step, Version};
use futures::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::commit::changes::ChangesInLog;
use crate::commit::committer::{Committer, Next};
use crate::commit::outcome::Stop;
use crate::commit::pending::CommitItem;
use crate::error::LogError;
use crate::flow_control::limiter::{FlowControlStatus, Limiter};

/// How the commit task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitEnd {
    /// The queue was closed and all its items are committed.
    Drained {
        /// The next sequence number.
        next_seq: Seq,
    },
    /// All items are committed, and so is the end of the producer.
    Finished {
        /// The number of TGBs of the producer.
        tgbs: Seq,
    },
    /// Another instance opened the producer in a newer epoch; uncommitted items are void.
    Fenced {
        by: Epoch,
        /// The instance that opened the newer epoch.
        instance: String,
    },
    /// The stream was sealed.
    Sealed,
    /// The next item was made by another mixture or stage than the one in force, so that it and those after it must be made
    /// again from the committed cursor.
    Changed,
}

impl From<Stop> for CommitEnd {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Fenced { by, instance } => Self::Fenced { by, instance },
            Stop::Sealed => Self::Sealed,
            Stop::Changed => Self::Changed,
            Stop::Finished { tgbs } => Self::Finished { tgbs },
        }
    }
}

/// The progress of the commit task; a watch value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitProgress {
    pub records: u64,
    /// Versions lost to other writers.
    pub lost: u64,
    /// Entries announced as intents.
    pub announced: u64,
    /// Entries of other producers in the records put.
    pub combined: u64,
    /// Objects under `intents/` that were read and could not be committed.
    pub refused_intents: u64,
    /// Whether this producer combines the entries of others at present.
    pub leading: bool,
    /// The next sequence number.
    pub next_seq: Seq,
    /// The version of the last record put.
    pub version: Option<Version>,
    /// The head of the stream when the last commit was seen to be visible.
    pub next_step: Step,
    /// Latency of the last commit, from ready to known to be visible.
    pub latency: Duration,
}

/// Bounds of the commit task.
#[derive(Debug, Clone)]
pub struct CommitOptions {
    /// Pending items; submitting more waits.
    pub queue: usize,
    /// TGBs per entry at most.
    pub tgbs_per_entry: usize,
    /// Bounds on how far the producer runs ahead of jobs, and the jobs' positions; `None` for no bound.
    /// When the sender is dropped while a commit is held back, the task ends with what is committed:
    /// the ceiling would never rise.
    pub pace: Option<watch::Receiver<FlowControl>>,
}

impl Default for CommitOptions {
    fn default() -> Self {
        Self {
            queue: 64,
            tgbs_per_entry: 256,
            pace: None,
        }
    }
}

enum Message {
    Item(CommitItem),
    Finish,
}

/// A handle to the commit task. When it is dropped, the task commits its pending items and ends.
#[derive(Debug)]
pub struct CommitQueue {
    send: mpsc::Sender<Message>,
    progress: watch::Receiver<CommitProgress>,
    flow_control: watch::Receiver<FlowControlStatus>,
    changes: watch::Receiver<ChangesInLog>,
    task: JoinHandle<Result<(CommitEnd, Committer), LogError>>,
}

impl CommitQueue {
    /// Submits an item; waits while the queue is full. Returns false when the task has ended: then
    /// `close` returns why.
    pub async fn submit(&self, item: CommitItem) -> bool {
        self.send.send(Message::Item(item)).await.is_ok()
    }

    /// Returns a watch of the task's progress.
    pub fn progress(&self) -> watch::Receiver<CommitProgress> {
        self.progress.clone()
    }

    /// Returns a watch of the producer's flow control.
    pub fn flow_control(&self) -> watch::Receiver<FlowControlStatus> {
        self.flow_control.clone()
    }

    /// Returns a watch of the mixtures and stages that the log has for the producer.
    pub fn changes(&self) -> watch::Receiver<ChangesInLog> {
        self.changes.clone()
    }

    /// Waits until all items are committed or the task stops; `finish` also commits the end of the
    /// producer.
    pub async fn close(self, finish: bool) -> Result<(CommitEnd, Committer), LogError> {
        if finish {
            // When the task has ended, the result below says why.
            let _ = self.send.send(Message::Finish).await;
        }
        drop(self.send);
        match self.task.await {
            Ok(end) => end,
            Err(e) => Err(LogError::Stopped(e.to_string())),
        }
    }
}

struct CommitTask<P> {
    committer: Committer,
    policy: P,
    queue: usize,
    finish: bool,
    closed: bool,
    /// When the log is polled next while a commit is held back.
    poll_at: Option<Duration>,
    progress: watch::Sender<CommitProgress>,
    flow_control: watch::Sender<FlowControlStatus>,
    changes: watch::Sender<ChangesInLog>,
}

/// While a commit is held back, the log is polled every eighth of the time already waited, clamped to this
/// range.
const HELD_POLL_MIN: Duration = Duration::from_millis(250);
const HELD_POLL_MAX: Duration = Duration::from_secs(5);

/// Why the task wakes up.
enum Wake {
    Event(Event),
    /// A commit is held back, and it is time to poll the log.
    Poll,
}

impl Committer {
    /// Starts the commit task.
    pub fn spawn(mut self, policy: impl Policy + 'static, options: CommitOptions) -> CommitQueue {
        let (send, receive) = mpsc::channel(options.queue.max(1));
        let start = CommitProgress {
            next_seq: self.next_seq(),
            ..CommitProgress::default()
        };
        let (progress, progress_watch) = watch::channel(start);
        let (flow_control, flow_control_watch) = watch::channel(FlowControlStatus {
            manifest: self.log().manifest().clone(),
            held: None,
            held_items: 0,
            lead: None,
        });
        let (changes, changes_watch) = watch::channel(self.changes());
        let first_event = self.first_event.take();
        let mut committer = self.restarted(options.tgbs_per_entry);
        committer.limiter = Limiter::new(options.pace);
        let task = CommitTask {
            committer,
            policy,
            queue: options.queue.max(1),
            finish: false,
            closed: false,
            poll_at: None,
            progress,
            flow_control,
            changes,
        };
        CommitQueue {
            send,
            progress: progress_watch,
            flow_control: flow_control_watch,
            changes: changes_watch,
            task: tokio::spawn(task.run(receive, first_event)),
        }
    }
}

impl<P: Policy> CommitTask<P> {
    async fn run(
        mut self,
        mut receive: mpsc::Receiver<Message>,
        first_event: Option<Event>,
    ) -> Result<(CommitEnd, Committer), LogError> {
        self.committer.recover().await?;
        let mut next = first_event.map_or(Next::Wait(None), Next::Event);
        loop {
            if self.is_over() {
                self.committer.step_down().await;
                return self.end(None).await;
            }
            let event = match next {
                Next::Event(event) => event,
                Next::Wait(time) => match self.wait(&mut receive, time).await {
                    Wake::Event(event) => event,
                    Wake::Poll => match self.poll().await? {
                        Some(stop) => return self.end(Some(stop)).await,
                        None => Event::Ready,
                    },
                },
                Next::Stopped(stop) => return self.end(Some(stop)).await,
            };
            // Items that became ready meanwhile join the next record.
            while !self.is_full()
                && let Ok(message) = receive.try_recv()
            {
                self.handle_message(message);
            }
            next = self.committer.advance(&mut self.policy, event).await?;
            if let Next::Stopped(stop) = next {
                return self.end(Some(stop)).await;
            }
            self.report();
        }
    }

    /// Whether nothing is left to commit, or nothing that ever can be.
    fn is_over(&self) -> bool {
        let committer = &self.committer;
        let for_ever = committer.is_held_back() && committer.limiter.is_closed();
        for_ever || self.closed && committer.pending.is_empty()
    }

    fn is_full(&self) -> bool {
        self.committer.pending.len() >= self.queue
    }

    /// Waits for more to commit, for other bounds, or until `time` is over.
    async fn wait(
        &mut self,
        receive: &mut mpsc::Receiver<Message>,
        time: Option<Duration>,
    ) -> Wake {
        let clock = self.committer.clock();
        let sleep = |time: Option<Duration>| match time {
            Some(time) => clock.sleep(time),
            None => std::future::pending().boxed(),
        };
        let (timer, poll) = (sleep(time), sleep(self.until_poll()));
        let open = !self.is_full() && !self.closed;
        let held = self.committer.is_held_back();
        Wake::Event(tokio::select! {
            biased;
            message = receive.recv(), if open => {
                if let Some(message) = message {
                    self.handle_message(message);
                    Event::Ready
                } else {
                    self.closed = true;
                    Event::Timer
                }
            }
            () = self.committer.limiter.changed(), if held => Event::Ready,
            () = timer => Event::Timer,
            () = poll => return Wake::Poll,
        })
    }

    /// The time until the next poll of the log; `None` while nothing is held back.
    fn until_poll(&mut self) -> Option<Duration> {
        if !self.committer.is_held_back() {
            self.poll_at = None;
            return None;
        }
        let now = self.committer.clock().now();
        let at = *self.poll_at.get_or_insert(now + HELD_POLL_MIN);
        Some(at.saturating_sub(now))
    }

    async fn poll(&mut self) -> Result<Option<Stop>, LogError> {
        let now = self.committer.clock().now();
        let since = self
            .committer
            .limiter
            .held()
            .map_or(now, |(_, since)| *since);
        let pause = (now.saturating_sub(since) / 8).clamp(HELD_POLL_MIN, HELD_POLL_MAX);
        // Without jitter, producers held back by one job would poll at the same moments for ever.
        let jitter = 768 + (self.committer.log.random() % 512) as u32;
        self.poll_at = Some(now + pause * jitter / 1024);
        self.committer.refresh_head().await
    }

    fn handle_message(&mut self, message: Message) {
        let now = self.committer.clock().now();
        match message {
            Message::Item(item) => self.committer.pending.item(item, now),
            Message::Finish => {
                self.finish = true;
                self.committer.pending.finish(now);
            }
        }
    }

    fn report(&self) {
        let committer = &self.committer;
        let counters = committer.counters;
        let progress = CommitProgress {
            records: counters.records,
            lost: counters.lost,
            announced: counters.announced,
            combined: counters.combined,
            refused_intents: committer.refused_intents(),
            leading: committer.leading,
            next_seq: committer.next_seq(),
            version: counters.version,
            next_step: counters.next_step,
            latency: counters.latency,
        };
        self.progress.send_if_modified(|before| {
            let changed = *before != progress;
            *before = progress;
            changed
        });
        if committer.limiter.is_bounded() {
            self.report_flow_control();
        }
        if self.changes.borrow().differ(&committer.log.manifest) {
            self.changes.send_replace(committer.changes());
        }
    }

    fn report_flow_control(&self) {
        let (log, limiter) = (&self.committer.log, &self.committer.limiter);
        let (held, lead) = (limiter.held().map(|(held, _)| held), limiter.backlog(log));
        let held_items = held.map_or(0, |_| self.committer.pending.len());
        self.flow_control.send_if_modified(|before| {
            let same = before.manifest.next_version() == log.manifest.next_version()
                && before.held.as_ref() == held
                && before.held_items == held_items
                && before.lead == lead;
            if !same {
                before.manifest = log.manifest.clone();
                (before.held, before.lead) = (held.cloned(), lead);
                before.held_items = held_items;
            }
            !same
        });
    }

    async fn end(mut self, stop: Option<Stop>) -> Result<(CommitEnd, Committer), LogError> {
        let drained = stop.is_none() && self.finish && self.committer.pending.is_empty();
        let finished = drained || matches!(stop, Some(Stop::Finished { .. }));
        self.committer.end(finished).await?;
        self.report();
        let next_seq = self.committer.next_seq();
        let end = match stop {
            Some(stop) => stop.into(),
            None if drained => CommitEnd::Finished { tgbs: next_seq },
            None => CommitEnd::Drained { next_seq },
        };
        Ok((end, self.committer))
    }
}
