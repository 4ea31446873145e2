//! Finds the border of a fork in the parent's log. A first fold, from the newest snapshot before it, finds the record
//! behind which all steps below the fork are assigned, and the records of the entries that reach over it. Two more, from
//! two other starts where there are any, give the state of the fork, and must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use batchweave_core::ids::{Hash, Step, Version};
use batchweave_core::keys;
use batchweave_core::limits::CATCH_UP_WINDOW;
use batchweave_core::manifest::fork::{Border, ForkState, LeftBehind};
use batchweave_core::manifest::{Folded, Manifest};

use super::ForkError;
use crate::error::LogError;
use crate::log::Log;
use crate::read::refold::Refold;
use crate::read::snapshot_search::list_snapshots;
use crate::read::window;

/// The border as one fold of the log gives it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Crossing {
    /// The first version behind which all steps below the fork are assigned; `None` at the stream's beginning.
    pub(super) version: Option<Version>,
    /// The hash of its record.
    pub(super) record: Hash,
    pub(super) view: Hash,
    pub(super) state: ForkState,
    pub(super) left: LeftBehind,
}

/// Folds of one log.
struct Folds<'l> {
    refold: Refold,
    log: &'l Log,
    step: Step,
}

/// Returns the border at `step`, which is assigned in `log` or its next one.
pub(super) async fn find(log: &Log, step: Step) -> Result<Crossing, ForkError> {
    let folds = Folds {
        refold: Refold::for_log(log),
        log,
        step,
    };
    if step == log.manifest().stream().first_step() {
        let (first, second) = (folds.start(None).await?, folds.start(None).await?);
        let first = folds.crossing(
            None,
            &first.manifest,
            Border::new(&first.manifest, None, step),
        )?;
        let m = &second.manifest;
        let second = folds.crossing(None, m, Border::new(m, None, step))?;
        return folds.agreed(first, second);
    }
    let starts = folds.starts_below().await?;
    let (version, needed) = folds.border(starts.last().copied()).await?;
    let oldest = needed.iter().next().copied().unwrap_or(version);
    let mut usable = starts.into_iter().rev().filter(|start| *start < oldest);
    let (newest, older) = (usable.next(), usable.next());
    let first = folds.cross(newest, version, &needed).await?;
    let second = folds.cross(older, version, &needed).await?;
    folds.agreed(first, second)
}

impl Folds<'_> {
    /// Returns the snapshots in which some step below the fork is not assigned yet, oldest first. Their heads grow with
    /// their versions, so few of many are read.
    async fn starts_below(&self) -> Result<Vec<Version>, ForkError> {
        let mut listed = list_snapshots(self.log.store.as_ref()).await?;
        listed.retain(|version| *version < self.log.manifest().next_version());
        listed.sort_unstable();
        let (mut below, mut end) = (0, listed.len());
        // The newest ones first, since most forks begin near the head.
        let mut probe = end.saturating_sub(1);
        while below < end {
            match self.refold.start(Some(listed[probe])).await? {
                None => {
                    listed.remove(probe);
                    end -= 1;
                }
                Some(log) if log.manifest.next_step() < self.step => below = probe + 1,
                Some(_) => end = probe,
            }
            probe = below + (end - below) / 2;
        }
        listed.truncate(below);
        Ok(listed)
    }

    async fn start(&self, base: Option<Version>) -> Result<Log, ForkError> {
        let log = self.refold.start(base).await?;
        log.ok_or_else(|| {
            let key = keys::snapshot(base.unwrap_or_default());
            LogError::LostSnapshot { key }.into()
        })
    }

    /// Returns the version of the border, and those of the entries that reach over it.
    async fn border(
        &self,
        base: Option<Version>,
    ) -> Result<(Version, BTreeSet<Version>), ForkError> {
        let mut log = self.start(base).await?;
        let (step, mut found) = (self.step, None);
        walk(
            &mut log,
            self.log.manifest().next_version(),
            |before, folded, after| {
                if after.next_step() < step {
                    return ControlFlow::Continue(());
                }
                let needed = Border::new(after, Some(folded), step).needed();
                found = Some((before.next_version(), needed));
                ControlFlow::Break(())
            },
        )
        .await?;
        found.ok_or_else(|| self.refused("a second fold of the log does not reach it".to_owned()))
    }

    /// Folds to the border at `version`, and notes the entries of the versions `needed` on the way.
    async fn cross(
        &self,
        base: Option<Version>,
        version: Version,
        needed: &BTreeSet<Version>,
    ) -> Result<Crossing, ForkError> {
        let mut log = self.start(base).await?;
        let (mut seen, mut last) = (BTreeMap::new(), None);
        walk(&mut log, version + 1, |before, folded, after| {
            let at = before.next_version();
            if needed.contains(&at) {
                seen.insert(at, (before.clone(), folded.clone()));
            }
            if at == version {
                last = Some((
                    before.next_step(),
                    Border::new(after, Some(folded), self.step),
                ));
            }
            ControlFlow::Continue(())
        })
        .await?;
        let (before, mut border) = last
            .filter(|(before, border)| *before < self.step && border.needed() == *needed)
            .ok_or_else(|| self.differ(Some(version)))?;
        debug_assert!(before < self.step);
        for (before, folded) in seen.values() {
            border.see(before, folded);
        }
        self.crossing(Some(version), &log.manifest, border)
    }

    fn crossing(
        &self,
        version: Option<Version>,
        m: &Manifest,
        border: Border,
    ) -> Result<Crossing, ForkError> {
        let (state, left) = border.state().map_err(|why| self.refused(why))?;
        Ok(Crossing {
            version,
            record: m.prev(),
            view: m.view(),
            state,
            left,
        })
    }

    fn agreed(&self, first: Crossing, second: Crossing) -> Result<Crossing, ForkError> {
        if first == second {
            return Ok(first);
        }
        Err(self.differ(first.version))
    }

    fn differ(&self, version: Option<Version>) -> ForkError {
        ForkError::Differ {
            root: self.log.store.root().to_owned(),
            version: version.map_or("0".to_owned(), |v| v.to_string()),
        }
    }

    fn refused(&self, why: String) -> ForkError {
        ForkError::Refused {
            root: self.log.store.root().to_owned(),
            step: self.step,
            why,
        }
    }
}

/// Folds the records below `to`; shows each to `visit`, with the states before and after it.
async fn walk(
    log: &mut Log,
    to: Version,
    mut visit: impl FnMut(&Manifest, &Folded, &Manifest) -> ControlFlow<()>,
) -> Result<(), LogError> {
    let mut size = CATCH_UP_WINDOW;
    loop {
        let next = log.manifest().next_version();
        let count = to.saturating_sub(next).min(size);
        if count == 0 {
            return Ok(());
        }
        let store = Arc::clone(&log.store);
        let found = window::read(store.as_ref(), next, count).await?;
        if found.records.is_empty() {
            let (root, key) = (store.root().to_owned(), keys::log(next));
            let later = to - 1;
            return Err(LogError::Gap { root, key, later });
        }
        size = found.next();
        for bytes in found.records {
            let before = log.manifest().clone();
            let Some(folded) = log.fold(&bytes).await? else {
                break;
            };
            if visit(&before, &folded, log.manifest()).is_break() {
                return Ok(());
            }
        }
    }
}
