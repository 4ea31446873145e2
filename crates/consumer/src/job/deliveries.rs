//! What the node's ranks have received, for the ledger: told when a rank reports it, with the
//! checksums that were checked when the frames came.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use batchweave_core::ids::Step;
use tokio::sync::{mpsc, oneshot};

use crate::engine::SessionId;
use crate::job::membership::Member;
use crate::metrics::Metrics;

/// Reports that wait for the ledger. It never waits itself, so that they are few.
const QUEUE_MAX: usize = 1 << 16;

/// Something that a rank of an attempt reported. Readers without a job report nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A session began: the rank has received every step below `next_step`, from this daemon or from an
    /// earlier one, and what it receives next is reported from there on. A second one in the same
    /// session says that steps between were not sent by this daemon.
    Began {
        session: SessionId,
        member: Arc<Member>,
        next_step: Step,
    },
    /// The rank has received all its slices of `step`; CRC32C of each one's payload.
    Step {
        session: SessionId,
        member: Arc<Member>,
        step: Step,
        crcs: Vec<u32>,
        /// It was sent in an earlier session and is concluded from where the rank goes on: the rank may
        /// have it from another daemon, which told of it.
        concluded: bool,
    },
    /// A checkpoint that restarts at `step` is durable. What the rank received before was told before,
    /// and is to be kept before the mark is.
    Marked {
        session: SessionId,
        member: Arc<Member>,
        step: Step,
        kept: Kept,
    },
    /// The session is over, and none of the same rank has followed.
    Ended {
        session: SessionId,
        member: Arc<Member>,
    },
}

/// Tells whoever waits whether all that was reported before is stored. Dropped unheard, it is not.
#[derive(Debug, Clone)]
pub(crate) struct Kept(Arc<Mutex<Option<oneshot::Sender<bool>>>>);

impl Kept {
    /// The two ends.
    pub(crate) fn new() -> (Self, oneshot::Receiver<bool>) {
        let (told, receipt) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(told)))), receipt)
    }

    pub(crate) fn tell(&self, stored: bool) {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Nobody waits any more: the daemon stops.
        let _ = told.map(|told| told.send(stored));
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Kept {}

/// Where reports go.
#[derive(Debug, Clone)]
pub(crate) struct Deliveries {
    queue: mpsc::Sender<Delivery>,
    metrics: Arc<Metrics>,
}

impl Deliveries {
    /// The two ends.
    pub(crate) fn channel(metrics: Arc<Metrics>) -> (Self, mpsc::Receiver<Delivery>) {
        let (queue, receiver) = mpsc::channel(QUEUE_MAX);
        (Self { queue, metrics }, receiver)
    }

    /// Never waits: what does not fit is lost to the ledger, counted, and a gap in the proof.
    pub(crate) fn tell(&self, delivery: Delivery) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.queue.try_send(delivery) {
            self.metrics.deliveries_lost.inc();
        }
    }
}

/// What a rank was sent and has not reported yet.
#[derive(Debug, Default)]
pub(crate) struct Unreported {
    steps: VecDeque<(Step, Vec<u32>)>,
}

impl Unreported {
    /// Notes a frame that was sent. Frames come in order.
    pub(crate) fn sent(&mut self, step: Step, crc: u32) {
        match self.steps.back_mut().filter(|last| last.0 == step) {
            Some(last) => last.1.push(crc),
            None => self.steps.push_back((step, vec![crc])),
        }
    }

    /// The steps below `next_step`, which the rank has received.
    pub(crate) fn take_below(&mut self, next_step: Step) -> Vec<(Step, Vec<u32>)> {
        let count = self.steps.partition_point(|(step, _)| *step < next_step);
        self.steps.drain(..count).collect()
    }

    /// The first of the steps below `next_step`.
    pub(crate) fn first_below(&self, next_step: Step) -> Option<Step> {
        let (step, _) = self.steps.front()?;
        (*step < next_step).then_some(*step)
    }

    /// The rank comes again: what it has not received is sent again.
    pub(crate) fn forget(&mut self) {
        self.steps.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_steps_are_taken_in_order() {
        let mut sent = Unreported::default();
        for (step, crc) in [(3, 30), (3, 31), (9, 90), (9, 91), (10, 100)] {
            sent.sent(step, crc);
        }
        assert_eq!(sent.take_below(3), []);
        assert_eq!(sent.take_below(9), [(3, vec![30, 31])]);
        assert_eq!(sent.take_below(10), [(9, vec![90, 91])]);
        sent.forget();
        assert_eq!(sent.take_below(99), []);
    }
}
