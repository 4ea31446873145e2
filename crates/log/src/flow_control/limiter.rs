//! How far a producer may commit now, by the bounds and positions that it last received and by the state
//! that it has folded.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::flow_control::{Backlog, FlowControl, Gate, HeldBack, Sizes, backlog};
use batchweave_core::ids::Version;
use batchweave_core::limits::SEGMENT_STEPS;
use batchweave_core::manifest::{Manifest, StepEntry};
use tokio::sync::watch;

use crate::error::LogError;
use crate::log::Log;

/// A producer's flow control; a watch value, kept up to date while there are bounds.
#[derive(Debug, Clone)]
pub struct FlowControlStatus {
    pub manifest: Manifest,
    /// Why a pending commit is held back, if one is.
    pub held: Option<HeldBack>,
    /// Items that wait until it is not; 0 while none is held back.
    pub held_items: usize,
    /// How far the stream is ahead of the slowest pacing job.
    pub lead: Option<Backlog>,
}

/// The bounds of one producer. The default holds nothing back.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    receiver: Option<watch::Receiver<FlowControl>>,
    received: FlowControl,
    /// Counted only with a bound in bytes.
    sizes: Option<Sizes>,
    /// Why the first pending commit is held back, and since when.
    held: Option<(HeldBack, Duration)>,
    /// The sender is dropped: what is held back now stays so for ever.
    closed: bool,
    /// At this version all entries that others had announced were above the ceiling.
    blocked_at: Option<Version>,
}

impl Limiter {
    pub(crate) fn new(receiver: Option<watch::Receiver<FlowControl>>) -> Self {
        Self {
            receiver,
            ..Self::default()
        }
    }

    /// Counts the sizes of TGBs that were given steps.
    pub(crate) fn note_placed(&mut self, placed: &[Arc<StepEntry>]) {
        if let Some(sizes) = &mut self.sizes {
            sizes.note(placed);
        }
    }

    /// Returns the gate in the folded state; `None` without bounds.
    pub(crate) async fn gate(&mut self, log: &mut Log) -> Result<Option<Gate>, LogError> {
        if !self.receive() {
            return Ok(None);
        }
        self.count_bytes(log).await?;
        let gate = Gate::new(&self.received, log.manifest(), self.sizes.as_ref());
        Ok(Some(gate))
    }

    /// Takes over the newest bounds and positions; false without bounds.
    fn receive(&mut self) -> bool {
        let Some(receiver) = &mut self.receiver else {
            return false;
        };
        self.closed |= receiver.has_changed().is_err();
        let newest = receiver.borrow_and_update();
        if *newest != self.received {
            self.received.clone_from(&newest);
            self.blocked_at = None;
        }
        true
    }

    /// Counts the bytes of the steps from the slowest position on, or as many as the bound allows.
    async fn count_bytes(&mut self, log: &mut Log) -> Result<(), LogError> {
        let Some(most) = self.received.limits.bytes else {
            self.sizes = None;
            return Ok(());
        };
        let m = log.manifest();
        let known = self.sizes.take().filter(|s| s.next() == m.next_step());
        let mut sizes = known.unwrap_or_else(|| Sizes::new(m, most));
        if let Some(slowest) = self.received.slowest(m) {
            let from = slowest.position.max(m.watermark());
            while sizes.first() > from && sizes.wants_older() {
                let segment = log
                    .segment((sizes.first() - 1) / SEGMENT_STEPS, None)
                    .await?;
                sizes.add_older(&segment);
            }
        }
        self.sizes = Some(sizes);
        Ok(())
    }

    /// Notes why the first pending commit is held back now, if it is.
    pub(crate) fn note_held(&mut self, held: Option<HeldBack>, now: Duration) {
        let since = self.held.take().map_or(now, |(_, since)| since);
        self.held = held.map(|held| (held, since));
    }

    /// Returns why the first pending commit is held back, and since when.
    pub(crate) fn held(&self) -> Option<&(HeldBack, Duration)> {
        self.held.as_ref()
    }

    /// Returns how far the stream is ahead of the slowest job.
    pub(crate) fn backlog(&self, log: &Log) -> Option<Backlog> {
        backlog(log.manifest(), &self.received, self.sizes.as_ref())
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.receiver.is_some()
    }

    /// Whether the ceiling can never rise again.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Notes that all announced entries of others are above the ceiling at this version.
    pub(crate) fn note_blocked(&mut self, version: Version) {
        self.blocked_at = Some(version);
    }

    pub(crate) fn is_blocked_at(&self, version: Version) -> bool {
        self.blocked_at == Some(version)
    }

    /// Waits for other bounds or positions, or until there will be none.
    pub(crate) async fn changed(&mut self) {
        match &mut self.receiver {
            Some(receiver) if !self.closed => self.closed = receiver.changed().await.is_err(),
            _ => std::future::pending().await,
        }
    }
}
