//! Where a step's data is: in the open segment, in memory, in a stored segment, or - when whoever
//! should have written that segment has not - in the log itself.

use std::sync::Arc;

use batchweave_core::ids::Step;
use batchweave_core::keys;
use batchweave_core::limits::{CATCH_UP_WINDOW, SEGMENT_STEPS};
use batchweave_core::manifest::{Manifest, Segment, StepEntry};
use tracing::{info, warn};

use crate::{Log, LogError};

/// Segments read lately that are kept.
const CACHE_MAX: usize = 8;

/// Where a step is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    /// Here.
    At(Arc<StepEntry>),
    /// Not committed as far as we have folded.
    NotYet,
    /// It will never be: the stream ends before it.
    Ended {
        /// The number of steps of the stream.
        end: Step,
    },
    /// It is below the watermark; its data may be gone.
    Reclaimed {
        /// The oldest step that can be read.
        watermark: Step,
    },
}

impl Log {
    /// Finds `step` in what is folded; reads at most one segment. Call `catch_up` to learn of newer
    /// steps.
    pub async fn locate(&mut self, step: Step) -> Result<Located, LogError> {
        let m = &self.manifest;
        if step < m.watermark() {
            return Ok(Located::Reclaimed {
                watermark: m.watermark(),
            });
        }
        if step >= m.next_step() {
            return Ok(match m.end() {
                Some(end) => Located::Ended { end },
                None => Located::NotYet,
            });
        }
        if let Some(entry) = m.open_step(step) {
            return Ok(Located::At(Arc::clone(entry)));
        }
        let segment = self.segment(step / SEGMENT_STEPS).await?;
        let key = || keys::segment(step / SEGMENT_STEPS);
        let entry = segment
            .step(step)
            .ok_or_else(|| LogError::NoSegment { key: key() })?;
        Ok(Located::At(Arc::clone(entry)))
    }

    async fn segment(&mut self, number: u64) -> Result<Arc<Segment>, LogError> {
        let s = &self.snapshots;
        let known = s
            .unstored
            .iter()
            .chain(&s.cache)
            .find(|segment| segment.segment == number);
        if let Some(segment) = known {
            return Ok(Arc::clone(segment));
        }
        let key = keys::segment(number);
        let stored = match self.store.get(&key).await {
            Ok(bytes) => match Segment::from_json(&bytes, self.manifest.stream_id(), number) {
                Ok(segment) => Some(segment),
                Err(e) => {
                    warn!(error = %e, "an unusable index segment is ignored");
                    None
                }
            },
            Err(e) if e.is_not_found() => None,
            Err(e) => return Err(e.into()),
        };
        let segment = match stored {
            Some(segment) => Arc::new(segment),
            None => Arc::new(self.rebuild(number).await?),
        };
        self.snapshots.cache.push_back(Arc::clone(&segment));
        if self.snapshots.cache.len() > CACHE_MAX {
            self.snapshots.cache.pop_front();
        }
        Ok(segment)
    }

    /// Folds the log from its beginning until the segment is full. Slow and rare.
    async fn rebuild(&self, number: u64) -> Result<Segment, LogError> {
        info!(
            segment = number,
            "an index segment is missing: rebuilding it from the log"
        );
        let stream_json = self.store.get(keys::STREAM).await?;
        let manifest = Manifest::new(self.manifest.stream().clone(), &stream_json);
        let options = crate::LogOptions {
            write_snapshots: false,
            ..crate::LogOptions::new([0; 32])
        };
        let mut scratch = Self::new(Arc::clone(&self.store), manifest, &options);
        scratch.window = CATCH_UP_WINDOW;
        loop {
            let (folded, at_head) = Box::pin(scratch.catch_up_window()).await?;
            let mut segments = folded.into_iter().flat_map(|f| f.segments);
            if let Some(found) = segments.find(|s| s.segment == number) {
                return Ok(found);
            }
            if at_head {
                return Err(LogError::NoSegment {
                    key: keys::segment(number),
                });
            }
        }
    }
}
