//! How far a producer may commit by now: the bounds and positions that it was last told, and what it
//! has folded itself.

use std::time::Duration;

use batchweave_core::flow_control::{Backlog, FlowControl, Gate, HeldBack, Sizes, backlog};
use batchweave_core::ids::Version;
use batchweave_core::limits::SEGMENT_STEPS;
use batchweave_core::manifest::StepEntry;
use tokio::sync::watch;

use crate::{Log, LogError};

/// See the file's header. The default holds nothing back.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    told: Option<watch::Receiver<FlowControl>>,
    pace: FlowControl,
    /// Counted only with a bound in bytes.
    sizes: Option<Sizes>,
    held: Option<(HeldBack, Duration)>,
    /// Whoever reads positions is gone: what is held now will be held for ever.
    last: bool,
    /// At this version everything that others had announced was above the ceiling.
    vain: Option<Version>,
}

impl Ahead {
    pub(crate) fn new(told: Option<watch::Receiver<FlowControl>>) -> Self {
        Self {
            told,
            ..Self::default()
        }
    }

    /// These TGBs got their steps.
    pub(crate) fn note(&mut self, placed: &[std::sync::Arc<StepEntry>]) {
        if let Some(sizes) = &mut self.sizes {
            sizes.note(placed);
        }
    }

    /// The gate in the folded state; `None`: nothing is bounded.
    pub(crate) async fn gate(&mut self, log: &mut Log) -> Result<Option<Gate>, LogError> {
        if !self.learn() {
            return Ok(None);
        }
        self.count(log).await?;
        let gate = Gate::new(&self.pace, log.manifest(), self.sizes.as_ref());
        Ok(Some(gate))
    }

    /// Takes over what was told; false when nothing ever is.
    fn learn(&mut self) -> bool {
        let Some(told) = &mut self.told else {
            return false;
        };
        self.last |= told.has_changed().is_err();
        let newest = told.borrow_and_update();
        if *newest != self.pace {
            self.pace.clone_from(&newest);
            self.vain = None;
        }
        true
    }

    /// Counts bytes from the slowest position on, or as many as the bound allows.
    async fn count(&mut self, log: &mut Log) -> Result<(), LogError> {
        let Some(most) = self.pace.limits.bytes else {
            self.sizes = None;
            return Ok(());
        };
        let m = log.manifest();
        let known = self.sizes.take().filter(|s| s.next() == m.next_step());
        let mut sizes = known.unwrap_or_else(|| Sizes::new(m, most));
        if let Some(slowest) = self.pace.slowest(m) {
            let from = slowest.position.max(m.watermark());
            while sizes.first() > from && sizes.wants_older() {
                let segment = log.segment((sizes.first() - 1) / SEGMENT_STEPS).await?;
                sizes.add_older(&segment);
            }
        }
        self.sizes = Some(sizes);
        Ok(())
    }

    /// What is held by now, if anything.
    pub(crate) fn note_held(&mut self, held: Option<HeldBack>, now: Duration) {
        let since = self.held.take().map_or(now, |(_, since)| since);
        self.held = held.map(|held| (held, since));
    }

    /// Why something is held, and since when.
    pub(crate) fn held(&self) -> Option<&(HeldBack, Duration)> {
        self.held.as_ref()
    }

    /// How far the stream is ahead of the slowest job.
    pub(crate) fn lead(&self, log: &Log) -> Option<Backlog> {
        backlog(log.manifest(), &self.pace, self.sizes.as_ref())
    }

    /// Whether anything is bounded.
    pub(crate) fn is_bounded(&self) -> bool {
        self.told.is_some()
    }

    /// Whether the ceiling can rise no more.
    pub(crate) fn is_last(&self) -> bool {
        self.last
    }

    /// Nothing that others announced fits at this version.
    pub(crate) fn in_vain(&mut self, version: Version) {
        self.vain = Some(version);
    }

    pub(crate) fn is_in_vain(&self, version: Version) -> bool {
        self.vain == Some(version)
    }

    /// Waits until other bounds or positions are told, or never will be.
    pub(crate) async fn changed(&mut self) {
        match &mut self.told {
            Some(told) if !self.last => self.last = told.changed().await.is_err(),
            _ => std::future::pending().await,
        }
    }
}
