//! Reports to the ledger of what ranks have received, with the checksums that were verified when the frames
//! were read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use batchweave_core::ids::Step;
use tokio::sync::{mpsc, oneshot};

use crate::engine::SessionId;
use crate::job::membership::Member;
use crate::metrics::Metrics;

/// Most reports that wait for the ledger, which rarely waits itself.
const QUEUE_MAX: usize = 1 << 16;

/// A report of a rank of an attempt. Readers without a job report nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A session began: the rank has received every step below `next_step`, from this daemon or an earlier
    /// one, and later reports continue there. A second one in the same session means that this daemon did
    /// not send the steps between.
    Began {
        session: SessionId,
        member: Arc<Member>,
        next_step: Step,
    },
    /// The rank has received all its slices of `step`. `crcs`: the CRC32C of the payload of each.
    Step {
        session: SessionId,
        member: Arc<Member>,
        step: Step,
        crcs: Vec<u32>,
        /// The step was sent in an earlier session, and its receipt follows from the position at which the
        /// rank resumes. The rank may have received it from another daemon, which has reported it then.
        concluded: bool,
    },
    /// A checkpoint that restarts at `step` is durable. All that the rank received before was reported
    /// earlier, and must be stored before the mark.
    Marked {
        session: SessionId,
        member: Arc<Member>,
        step: Step,
        receipt: ReceiptSender,
    },
    /// States of many ranges wait to be stored. One that is lost follows with the next report of any rank.
    StatesDue,
    /// The session is over, and the rank has no newer one.
    Ended {
        session: SessionId,
        member: Arc<Member>,
    },
}

/// Resolves a [`oneshot::Receiver`] with whether all that was reported before is stored. Dropped, it counts
/// as false.
#[derive(Debug, Clone)]
pub(crate) struct ReceiptSender(Arc<Mutex<Option<oneshot::Sender<bool>>>>);

impl ReceiptSender {
    /// Returns a sender and its receiver.
    pub(crate) fn new() -> (Self, oneshot::Receiver<bool>) {
        let (sender, receipt) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receipt)
    }

    /// Sends whether all is stored, to a mark that waits for it.
    pub(crate) fn send(&self, stored: bool) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // An error means that the receiver is dropped, since the daemon stops.
        let _ = sender.map(|sender| sender.send(stored));
    }
}

impl PartialEq for ReceiptSender {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ReceiptSender {}

/// The sending end of the queue of reports.
#[derive(Debug, Clone)]
pub(crate) struct Deliveries {
    queue: mpsc::Sender<Delivery>,
    metrics: Arc<Metrics>,
}

impl Deliveries {
    /// Returns both ends of the queue.
    pub(crate) fn channel(metrics: Arc<Metrics>) -> (Self, mpsc::Receiver<Delivery>) {
        let (queue, receiver) = mpsc::channel(QUEUE_MAX);
        (Self { queue, metrics }, receiver)
    }

    /// Queues a report without waiting. A report that does not fit is lost and counted: the ledger later reads
    /// the steps from the store's indexes.
    pub(crate) fn report(&self, delivery: Delivery) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.queue.try_send(delivery) {
            self.metrics.deliveries_lost.inc();
        }
    }
}

/// The frames that a rank was sent and has not reported as received.
#[derive(Debug, Default)]
pub(crate) struct Unreported {
    steps: VecDeque<(Step, Vec<u32>)>,
}

impl Unreported {
    /// Adds a frame that was sent. Frames are sent in order.
    pub(crate) fn push(&mut self, step: Step, crc: u32) {
        match self.steps.back_mut().filter(|last| last.0 == step) {
            Some(last) => last.1.push(crc),
            None => self.steps.push_back((step, vec![crc])),
        }
    }

    /// Removes and returns the steps below `next_step`, which the rank has received.
    pub(crate) fn take_below(&mut self, next_step: Step) -> Vec<(Step, Vec<u32>)> {
        let count = self.steps.partition_point(|(step, _)| *step < next_step);
        self.steps.drain(..count).collect()
    }

    /// Returns the first step, if it is below `next_step`.
    pub(crate) fn first_below(&self, next_step: Step) -> Option<Step> {
        let (step, _) = self.steps.front()?;
        (*step < next_step).then_some(*step)
    }

    /// Removes all steps: a rank that reconnects is sent them again.
    pub(crate) fn clear(&mut self) {
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
            sent.push(step, crc);
        }
        assert_eq!(sent.take_below(3), []);
        assert_eq!(sent.take_below(9), [(3, vec![30, 31])]);
        assert_eq!(sent.take_below(10), [(9, vec![90, 91])]);
        sent.clear();
        assert_eq!(sent.take_below(99), []);
    }
}
