//! A producer process: it opens the log and its epoch, makes objects at its own speed, uploads them and
//! passes them to the real commit task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::flow_control::Limits;
use batchweave_core::ids::{Epoch, Nonce, ProducerName, Seq};
use batchweave_core::keys;
use batchweave_core::manifest::stages::in_force;
use batchweave_log::{
    CommitEnd, CommitItem, CommitOptions, CommitQueue, Committer, Log, LogError, OpenOutcome,
    PositionReader,
};
use batchweave_store::Store;

use super::content::{MadeBy, cursor, object};
use super::forward::options;
use super::shared::Shared;
use crate::actor::Actor;
use crate::draw::Draw;
use crate::plan::ProducerPlan;
use crate::policy::AnyPolicy;

/// The end of a process, other than death.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// All input is committed.
    Done(&'static str),
    /// The stream is sealed.
    Sealed,
    /// Readers stop at a record until a person repairs it.
    Stopped,
    /// A newer process has opened the name.
    Fenced,
    /// The store failed for too long; another process continues.
    Failed(String),
}

/// One process of a producer.
pub(super) struct Process {
    pub(super) shared: Arc<Shared>,
    pub(super) plan: ProducerPlan,
    pub(super) name: ProducerName,
    pub(super) actor: Arc<Actor>,
    pub(super) store: Arc<dyn Store>,
}

impl Process {
    pub(super) async fn run(self) -> End {
        match self.opened().await {
            Ok(Ok(producer)) => match self.produce(*producer).await {
                Ok(end) => end,
                Err(e) => self.failed(e),
            },
            Ok(Err(end)) => end,
            Err(e) => self.failed(e),
        }
    }

    /// Classifies an error: store failures are part of the world, anything else is a violation.
    fn failed(&self, error: LogError) -> End {
        if self.shared.may_pass(&error) && matches!(error, LogError::Fold(_)) {
            return End::Stopped;
        }
        if !self.shared.may_pass(&error) {
            let text = format!("{} stopped: {error}", self.actor.name);
            self.shared.found("writer-error", self.actor.id, text);
        }
        End::Failed(error.to_string())
    }

    async fn opened(&self) -> Result<Result<Box<Committer>, End>, LogError> {
        let options = options(&self.shared, &self.actor, true);
        let log = Log::open(Arc::clone(&self.store), &options).await?;
        let opening =
            Committer::open_with(log, self.name.clone(), &self.actor.name, &mut self.policy())
                .await?;
        Ok(match opening {
            OpenOutcome::Opened(producer) => Ok(producer),
            OpenOutcome::Finished { tgbs } if tgbs == self.plan.tgbs => {
                Err(End::Done("finished before"))
            }
            OpenOutcome::Finished { tgbs } => {
                let text = format!(
                    "{} finished with {tgbs} of {} TGBs",
                    self.name, self.plan.tgbs
                );
                self.shared.found("exactly-once", self.actor.id, text);
                Err(End::Done("finished before"))
            }
            OpenOutcome::Sealed => Err(End::Sealed),
            OpenOutcome::Fenced { .. } => Err(End::Fenced),
        })
    }

    fn policy(&self) -> AnyPolicy {
        let seed = self.actor.draw(|d| d.range(0..u64::MAX));
        AnyPolicy::new(self.plan.policy, seed)
    }

    async fn produce(&self, producer: Committer) -> Result<End, LogError> {
        let (epoch, nonce, mut seq) = (producer.epoch(), producer.nonce(), producer.next_seq());
        self.shared.store.note(
            &self.actor,
            format!("opened term {epoch}, goes on from TGB {seq}"),
        );
        self.check_cursor(&producer);
        let options = CommitOptions {
            queue: 8,
            tgbs_per_entry: self.plan.per_entry,
            pace: None,
        };
        let queue = self.spawn(producer, options);
        while seq < self.plan.tgbs {
            let pause = self.actor.draw(Draw::exponential);
            self.actor.sleep(self.plan.every.mul_f64(pause)).await;
            let count = self.actor.draw(|d| d.range(1..self.plan.shared + 1));
            let (count, made_by) = self.of_one_change(&queue, seq, count);
            let made = self.item(epoch, nonce, seq, count, made_by).await;
            let Some(item) = made else {
                return Ok(End::Failed("an upload failed for too long".to_owned()));
            };
            if !queue.submit(item).await {
                break;
            }
            seq += count;
            self.acknowledged(&queue);
        }
        let progress = queue.progress();
        let (end, producer) = queue.close(true).await?;
        self.shared
            .acknowledged(self.plan.number, progress.borrow().next_seq);
        drop(producer);
        Ok(match end {
            CommitEnd::Finished { .. } | CommitEnd::Drained { .. } => End::Done("finished"),
            CommitEnd::Sealed => End::Sealed,
            CommitEnd::Changed => End::Failed("the mixture or the stage had changed".to_owned()),
            CommitEnd::Fenced { .. } => End::Fenced,
        })
    }

    /// Reports a cursor that is not the one of the next TGB.
    fn check_cursor(&self, producer: &Committer) {
        let seq = producer.next_seq();
        if producer.cursor() != cursor(seq) {
            let text = format!(
                "{} at TGB {seq} has the cursor {:?}",
                self.name,
                producer.cursor()
            );
            self.shared.found("cursor", self.actor.id, text);
        }
    }

    /// Returns at most `count` TGBs from `seq` on that have one mixture and one stage, and these.
    fn of_one_change(&self, queue: &CommitQueue, seq: Seq, count: u64) -> (u64, MadeBy) {
        let known = queue.changes().borrow().clone();
        let next = |changes: &BTreeMap<Seq, u64>| {
            let next = changes.range(seq + 1..).next();
            next.map_or(Seq::MAX, |(next, _)| *next)
        };
        // An object holds TGBs of one mixture and one stage only.
        let end = next(&known.from)
            .min(next(&known.stages))
            .min(self.plan.tgbs);
        let made_by = MadeBy {
            mixture: in_force(&known.from, seq),
            stage: in_force(&known.stages, seq),
        };
        (count.min(end - seq), made_by)
    }

    /// Starts the commit task, and flow control if the world has a bound.
    fn spawn(&self, producer: Committer, mut options: CommitOptions) -> CommitQueue {
        let ahead = self.shared.plan.life.as_ref().and_then(|life| life.ahead);
        let Some(ahead) = ahead else {
            return producer.spawn(self.policy(), options);
        };
        let (pacer, told) = PositionReader::new(Limits {
            steps: Some(ahead),
            ..Limits::default()
        });
        options.pace = Some(told);
        let queue = producer.spawn(self.policy(), options);
        let (store, clock) = (Arc::clone(&self.store), self.actor.clock());
        let seed = self.actor.draw(Draw::seed);
        tokio::spawn(pacer.follow(store, clock, queue.flow_control(), seed));
        queue
    }

    fn acknowledged(&self, queue: &CommitQueue) {
        let next = queue.progress().borrow().next_seq;
        self.shared.acknowledged(self.plan.number, next);
    }

    /// Uploads an object, with retries.
    async fn item(
        &self,
        epoch: Epoch,
        nonce: Nonce,
        first: Seq,
        count: u64,
        made_by: MadeBy,
    ) -> Option<CommitItem> {
        let random = made_by.random_with(self.actor.draw(|d| d.range(0..u64::MAX)));
        let seqs = (first, first + count - 1);
        let key = keys::data(&self.name, epoch, nonce, seqs, random, 0);
        let stream = self.shared.stream_id();
        let (body, tgbs) = object(stream, epoch, &self.name, &key, first, count);
        for _ in 0..20 {
            if self.store.upload(&key, body.clone()).await.is_ok() {
                return Some(CommitItem {
                    tgbs,
                    cursor: cursor(first + count),
                    mixture: Some(made_by.mixture),
                    stage: made_by.stage,
                });
            }
            self.actor.sleep(Duration::from_millis(100)).await;
        }
        None
    }
}
