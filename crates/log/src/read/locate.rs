//! Finds the entry of a step: in the open segment, in memory, in a stored segment, or, when that segment is
//! missing, in the log itself.

use std::sync::Arc;

use batchweave_core::ids::{Hash, Step};
use batchweave_core::keys;
use batchweave_core::limits::{CATCH_UP_WINDOW, SEGMENT_STEPS, SNAPSHOTS_KEPT};
use batchweave_core::manifest::{Manifest, Segment, StepEntry};
use batchweave_store::ErrorKind;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::future::join;
use tracing::{info, warn};

use crate::copies::put::put_copy;
use crate::error::LogError;
use crate::log::{Log, LogOptions};
use crate::read::beginning::beginning;
use crate::read::fitting::{get_fitting, record_with_hash};
use crate::read::snapshot_search::list_snapshots;

/// Recently read segments that are kept.
const CACHE_MAX: usize = 8;

/// The location of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    At(Arc<StepEntry>),
    /// Not committed as far as the log is folded.
    NotYet,
    /// The stream ends before it.
    Ended {
        /// The number of steps of the stream.
        end: Step,
    },
    /// Below the watermark: its data may be deleted.
    Reclaimed {
        /// The oldest step that can be read.
        watermark: Step,
    },
}

impl Log {
    /// Finds `step` in the folded state; reads at most one segment and one record, in two rounds. Newer steps
    /// need a [`Log::catch_up`] first.
    pub fn locate(&mut self, step: Step) -> BoxFuture<'_, Result<Located, LogError>> {
        Box::pin(async move {
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
            if let Some(entry) = m.open_step(step).cloned() {
                if self.open_step_stands(&entry).await? {
                    return Ok(Located::At(entry));
                }
                return self.locate(step).await;
            }
            let segment = self.segment_of(step).await?;
            let key = || keys::segment(step / SEGMENT_STEPS);
            let entry = segment
                .step(step)
                .ok_or_else(|| LogError::NoSegment { key: key() })?;
            Ok(Located::At(Arc::clone(entry)))
        })
    }

    /// Returns the segment of a step; one in which the step is not that of the log is replaced.
    async fn segment_of(&mut self, step: Step) -> Result<Arc<Segment>, LogError> {
        let number = step / SEGMENT_STEPS;
        let segment = self.segment(number, Some(step)).await?;
        if !self.draws_comparison() || self.has_step(&segment, step).await? {
            return Ok(segment);
        }
        warn_other(number, step);
        self.snapshots.cache.retain(|kept| kept.segment != number);
        let rebuilt = Arc::new(self.rebuild(number).await?);
        self.snapshots.cache.push_back(Arc::clone(&rebuilt));
        Ok(rebuilt)
    }

    /// Returns a full segment; if it is read, `asked` is compared with its record.
    pub(crate) async fn segment(
        &mut self,
        number: u64,
        asked: Option<Step>,
    ) -> Result<Arc<Segment>, LogError> {
        let s = &self.snapshots;
        let known = s
            .unstored
            .iter()
            .chain(&s.cache)
            .find(|segment| segment.segment == number);
        if let Some(segment) = known {
            return Ok(Arc::clone(segment));
        }
        let segment = match self.stored_segment(number, asked).await? {
            Some(segment) => Arc::new(segment),
            None => Arc::new(self.rebuild(number).await?),
        };
        self.snapshots.cache.push_back(Arc::clone(&segment));
        if self.snapshots.cache.len() > CACHE_MAX {
            self.snapshots.cache.pop_front();
        }
        Ok(segment)
    }

    /// Reads a stored segment; `None` when it does not belong to this log, by the record that filled it.
    async fn stored_segment(
        &self,
        number: u64,
        asked: Option<Step>,
    ) -> Result<Option<Segment>, LogError> {
        let key = keys::segment(number);
        let (stream, least) = (
            self.manifest.stream_id(),
            self.manifest.stream().first_step(),
        );
        let parse = |bytes: &Bytes| Segment::from_json_from(bytes, stream, number, least);
        let read = match get_fitting(self.store.as_ref(), &key, parse).await {
            Ok(read) => read,
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) if e.kind == ErrorKind::TooLarge => {
                warn!(error = %e, "ignoring an unusable index segment");
                return Ok(None);
            }
            Err(e) => return Err(e.into()),
        };
        let segment = match read {
            Ok(segment) => segment,
            Err(e) => {
                warn!(error = %e, "ignoring an unusable index segment");
                return Ok(None);
            }
        };
        let committed = async {
            match asked {
                Some(step) => self.has_step(&segment, step).await,
                None => Ok(true),
            }
        };
        let (ours, committed) = join(self.is_filled_here(&segment), committed).await;
        if !ours? {
            warn!(
                key,
                "ignoring an index segment that does not belong to this log"
            );
            return Ok(None);
        }
        if !committed? {
            warn_other(number, asked.unwrap_or_default());
            return Ok(None);
        }
        Ok(Some(segment))
    }

    /// Whether the record that filled a segment is in this log.
    async fn is_filled_here(&self, segment: &Segment) -> Result<bool, LogError> {
        let Some(filled) = segment.filled else {
            return Ok(true);
        };
        if filled.version >= self.manifest.next_version() {
            return Ok(false);
        }
        let record = record_with_hash(self.store.as_ref(), filled.version, filled.record).await?;
        Ok(record.is_some())
    }

    /// Folds the log until the segment is full, from the newest snapshot before it or from version 0. Slow and
    /// rare. Segments that become full on the way are stored for other readers.
    async fn rebuild(&self, number: u64) -> Result<Segment, LogError> {
        info!(
            segment = number,
            "an index segment is missing: rebuilding it from the log"
        );
        let options = LogOptions {
            write_snapshots: false,
            clock: Arc::clone(&self.clock),
            ..LogOptions::new([0; 32])
        };
        let manifest = self.state_before(number).await?;
        let mut scratch = Self::new(Arc::clone(&self.store), manifest, &options);
        loop {
            scratch.window = CATCH_UP_WINDOW;
            let (folded, at_head) = Box::pin(scratch.catch_up_window()).await?;
            for segment in folded.into_iter().flat_map(|f| f.segments) {
                if self.snapshots.write {
                    self.restore(&segment).await;
                }
                if segment.segment == number {
                    return Ok(segment);
                }
            }
            if at_head {
                return Err(LogError::NoSegment {
                    key: keys::segment(number),
                });
            }
        }
    }

    /// Returns a state from which a fold passes all steps of a segment.
    async fn state_before(&self, number: u64) -> Result<Manifest, LogError> {
        let store = self.store.as_ref();
        let genesis = self.manifest.genesis();
        let same = |bytes: &Bytes| {
            if Hash::sha256(bytes) == genesis {
                return Ok(bytes.clone());
            }
            Err(LogError::Altered {
                key: keys::STREAM.to_owned(),
                held: genesis,
            })
        };
        let stream = get_fitting(store, keys::STREAM, same);
        let (stream_json, listed) = join(stream, list_snapshots(store)).await;
        let stream = Arc::new(self.manifest.stream().clone());
        let mut versions = listed?;
        versions.retain(|v| *v < self.manifest.next_version());
        versions.sort_unstable_by(|a, b| b.cmp(a));
        for version in versions.into_iter().take(SNAPSHOTS_KEPT) {
            let key = keys::snapshot(version);
            let Ok(bytes) = store.get(&key, keys::bytes_max(&key)).await else {
                continue;
            };
            let Ok(manifest) = Manifest::from_snapshot(Arc::clone(&stream), &bytes, version) else {
                continue;
            };
            let record = record_with_hash(store, version, manifest.prev()).await?;
            if record.is_some() && manifest.next_step() / SEGMENT_STEPS <= number {
                return Ok(manifest);
            }
        }
        beginning(store, stream.as_ref().clone(), &stream_json??).await
    }

    /// Stores a rebuilt segment, if this process may write.
    async fn restore(&self, segment: &Segment) {
        let key = keys::segment(segment.segment);
        let bytes = segment.to_json().into();
        if let Err(e) = put_copy(self.store.as_ref(), &key, bytes).await {
            warn!(key, error = %e, "cannot store a rebuilt index segment");
        }
    }
}

fn warn_other(segment: u64, step: Step) {
    let key = keys::segment(segment);
    warn!(
        key,
        step, "ignoring an index segment that has another TGB at a step than the log"
    );
}
