//! The commit task: takes finished uploads in order, asks the policy when to commit, and groups
//! what is ready into entries. It runs on a task of its own that nobody cancels (pitfall P8).

use std::time::Duration;

use batchweave_core::commit_policy::{Event, Policy};
use batchweave_core::flow_control::{Backlog, FlowControl, HeldBack};
use batchweave_core::ids::{Epoch, Seq, Step, Version};
use batchweave_core::manifest::Manifest;
use futures::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::LogError;
use crate::commit::committer::{Committer, Next};
use crate::commit::outcome::Stop;
use crate::commit::pending::CommitItem;
use crate::commit::producer::Producer;
use crate::flow_control::limiter::Ahead;

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
        /// The instance that opened the newer epoch.
        instance: String,
    },
    /// The stream was sealed.
    Sealed,
}

/// How far the commit task has come; a watch value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitProgress {
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

/// Where a producer stands with its bounds; a watch value, kept up to date while there are bounds.
#[derive(Debug, Clone)]
pub struct FlowControlStatus {
    /// The folded state.
    pub manifest: Manifest,
    /// Why it may not commit all that it has.
    pub held: Option<HeldBack>,
    /// How far the stream is ahead of the slowest job that paces.
    pub lead: Option<Backlog>,
}

/// Bounds of the commit task.
#[derive(Debug, Clone)]
pub struct CommitOptions {
    /// Items that may wait; submitting more waits.
    pub queue: usize,
    /// TGBs in one entry at most.
    pub tgbs_per_entry: usize,
    /// How far it may run ahead, and of whom; `None` is no bound. When the sender is gone while
    /// something is held, the task ends with what is committed: the ceiling would never rise.
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

/// The way to the commit task. Dropping it lets the task commit what it has and end.
#[derive(Debug)]
pub struct CommitQueue {
    send: mpsc::Sender<Message>,
    progress: watch::Receiver<CommitProgress>,
    standing: watch::Receiver<FlowControlStatus>,
    task: JoinHandle<Result<(CommitEnd, Producer), LogError>>,
}

impl CommitQueue {
    /// Hands over an item; waits while the queue is full. False when the task has ended: `join`
    /// says why.
    pub async fn submit(&self, item: CommitItem) -> bool {
        self.send.send(Message::Item(item)).await.is_ok()
    }

    /// Progress, to be read at any time.
    pub fn progress(&self) -> watch::Receiver<CommitProgress> {
        self.progress.clone()
    }

    /// Where the producer stands with its bounds, to be read at any time.
    pub fn flow_control(&self) -> watch::Receiver<FlowControlStatus> {
        self.standing.clone()
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
    /// When one who is held looks at the log again.
    look_at: Option<Duration>,
    progress: watch::Sender<CommitProgress>,
    standing: watch::Sender<FlowControlStatus>,
}

/// Who is held looks at the log after an eighth of the time for which it has been held, within these.
const LOOK_MIN: Duration = Duration::from_millis(250);
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Why the task wakes up.
enum Wake {
    Event(Event),
    /// It is held, and it is time to see what others do.
    Look,
}

impl Producer {
    /// Starts the commit task.
    pub fn spawn(self, policy: impl Policy + 'static, options: CommitOptions) -> CommitQueue {
        let (send, receive) = mpsc::channel(options.queue.max(1));
        let start = CommitProgress {
            next_seq: self.next_seq(),
            ..CommitProgress::default()
        };
        let (progress, watcher) = watch::channel(start);
        let (standing, stands) = watch::channel(FlowControlStatus {
            manifest: self.log().manifest().clone(),
            held: None,
            lead: None,
        });
        let untold = self.untold.clone();
        let mut committer = self.into_committer(options.tgbs_per_entry);
        committer.ahead = Ahead::new(options.pace);
        let driver = Driver {
            committer,
            policy,
            queue: options.queue.max(1),
            finish: false,
            closed: false,
            look_at: None,
            progress,
            standing,
        };
        CommitQueue {
            send,
            progress: watcher,
            standing: stands,
            task: tokio::spawn(driver.run(receive, untold)),
        }
    }
}

impl<P: Policy> Driver<P> {
    async fn run(
        mut self,
        mut receive: mpsc::Receiver<Message>,
        untold: Option<Event>,
    ) -> Result<(CommitEnd, Producer), LogError> {
        self.committer.recover().await?;
        let mut next = untold.map_or(Next::Wait(None), Next::Event);
        loop {
            if self.is_over() {
                self.committer.step_down().await;
                return self.end(None).await;
            }
            let event = match next {
                Next::Wait(time) => match self.wait(&mut receive, time).await {
                    Wake::Event(event) => event,
                    Wake::Look => match self.look().await? {
                        Ok(()) => Event::Ready,
                        Err(stop) => return self.end(Some(stop)).await,
                    },
                },
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
                Err(stop) => return self.end(Some(stop)).await,
            };
            self.report();
        }
    }

    /// Nothing is left to commit, or nothing that can be.
    fn is_over(&self) -> bool {
        let committer = &self.committer;
        let for_ever = committer.is_held() && committer.ahead.is_last();
        for_ever || self.closed && committer.wants.is_empty()
    }

    fn is_full(&self) -> bool {
        self.committer.wants.len() >= self.queue
    }

    /// Waits for more to commit, or for so long.
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
        let (timer, look) = (sleep(time), sleep(self.until_look()));
        let open = !self.is_full() && !self.closed;
        let held = self.committer.is_held();
        Wake::Event(tokio::select! {
            biased;
            message = receive.recv(), if open => {
                if let Some(message) = message {
                    self.take(message);
                    Event::Ready
                } else {
                    self.closed = true;
                    Event::Timer
                }
            }
            () = self.committer.ahead.changed(), if held => Event::Ready,
            () = timer => Event::Timer,
            () = look => return Wake::Look,
        })
    }

    /// How long until who is held looks at the log; `None` for who is not.
    fn until_look(&mut self) -> Option<Duration> {
        if !self.committer.is_held() {
            self.look_at = None;
            return None;
        }
        let now = self.committer.clock().now();
        let at = *self.look_at.get_or_insert(now + LOOK_MIN);
        Some(at.saturating_sub(now))
    }

    async fn look(&mut self) -> Result<Result<(), Stop>, LogError> {
        let now = self.committer.clock().now();
        let since = self.committer.ahead.held().map_or(now, |(_, since)| *since);
        let pause = (now.saturating_sub(since) / 8).clamp(LOOK_MIN, LOOK_MAX);
        // Those held by one job would look at the same moments for ever.
        let jitter = 768 + (self.committer.log.random() % 512) as u32;
        self.look_at = Some(now + pause * jitter / 1024);
        self.committer.look().await
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
        let committed = CommitProgress {
            records: done.records,
            lost: done.lost,
            announced: done.announced,
            combined: done.combined,
            refused_intents: committer.refused_intents(),
            leading: committer.leading,
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
        if committer.ahead.is_bounded() {
            self.report_standing();
        }
    }

    fn report_standing(&self) {
        let (log, ahead) = (&self.committer.log, &self.committer.ahead);
        let (held, lead) = (ahead.held().map(|(held, _)| held), ahead.lead(log));
        self.standing.send_if_modified(|before| {
            let same = before.manifest.next_version() == log.manifest.next_version()
                && before.held.as_ref() == held
                && before.lead == lead;
            if !same {
                before.manifest = log.manifest.clone();
                (before.held, before.lead) = (held.cloned(), lead);
            }
            !same
        });
    }

    async fn end(mut self, stop: Option<Stop>) -> Result<(CommitEnd, Producer), LogError> {
        let drained = stop.is_none() && self.finish && self.committer.wants.is_empty();
        let finished = drained || matches!(stop, Some(Stop::Finished { .. }));
        self.committer.end(finished).await?;
        self.report();
        let next_seq = self.committer.next_seq();
        let end = match stop {
            Some(Stop::Fenced { by, instance }) => CommitEnd::Fenced { by, instance },
            Some(Stop::Sealed) => CommitEnd::Sealed,
            Some(Stop::Finished { tgbs }) => CommitEnd::Finished { tgbs },
            None if drained => CommitEnd::Finished { tgbs: next_seq },
            None => CommitEnd::Drained { next_seq },
        };
        Ok((end, Producer::from_committer(self.committer)))
    }
}
