//! Finds the objects that are no longer needed, by one fold.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchweave_core::guards;
use batchweave_core::ids::ProducerName;
use batchweave_core::keys;
use batchweave_core::limits::SEGMENT_STEPS;
use batchweave_core::manifest::{Manifest, Segment};
use batchweave_core::retention::reclaim::{Fate, Reclaim, ReferencedObjects, retained_segments};
use batchweave_store::{ErrorKind, ObjectMeta, PendingUpload, Store, StoreError};
use tracing::debug;

use super::input_lists::{InputLists, WAITING_MAX};
use super::job_objects::{ObjectsByJob, each};
use super::report::{Class, ReclaimReport, Requests, Totals};
use super::verified::VerifiedObjects;
use crate::error::LogError;
use crate::log::Log;

/// Index segments kept from pass to pass; they never change.
const SEGMENTS_KEPT: usize = 32;

/// Index segments read before.
#[derive(Debug, Default)]
struct Segments(BTreeMap<u64, Arc<Segment>>);

/// Objects read in earlier passes that never change.
#[derive(Debug, Default)]
pub(super) struct Known {
    segments: Segments,
    lists: InputLists,
    pub(super) verified: VerifiedObjects,
}

/// The number of dead keys to remember.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    keys: u64,
    stop: bool,
}

impl Keep {
    /// Remembers this number of keys; then the scan ends.
    pub(super) fn up_to(keys: u64) -> Self {
        Self { keys, stop: true }
    }

    /// Remembers none: dead keys are only counted.
    pub(super) fn none() -> Self {
        Self {
            keys: 0,
            stop: false,
        }
    }
}

/// An object that is no longer needed.
#[derive(Debug)]
pub(super) struct Dead {
    pub(super) class: Class,
    pub(super) key: String,
    pub(super) bytes: u64,
}

/// The results of a scan.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) dead: Vec<Dead>,
    pub(super) uploads: Vec<PendingUpload>,
    pub(super) totals: BTreeMap<Class, Totals>,
    pub(super) requests: Requests,
    /// Every object was listed.
    pub(super) complete: bool,
}

impl Found {
    /// Adds the results to a report.
    pub(super) fn add_to(&self, report: &mut ReclaimReport) {
        report.totals.clone_from(&self.totals);
        report.requests.lists += self.requests.lists;
        report.requests.gets += self.requests.gets;
        report.more = !self.complete;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.dead.is_empty() && self.uploads.is_empty()
    }
}

/// Scans all objects that may be deleted. `log` is folded as far as the manifest of `rule`, and no further.
pub(super) async fn scan(
    log: &mut Log,
    rule: &Reclaim<'_>,
    objects: &ObjectsByJob,
    known: &mut Known,
    keep: Keep,
) -> Result<Found, LogError> {
    let mut found = Found::default();
    let named = known.segments.named(log, rule, &mut found.requests).await?;
    let later_fold = if guards::mixes_folds() {
        Some(later(log).await?)
    } else {
        None
    };
    let mixed = later_fold.as_ref().map(Reclaim::by);
    let rule = mixed.as_ref().unwrap_or(rule);
    let mut scan = Scan {
        store: Arc::clone(&log.store),
        keep,
        found,
    };
    let complete = scan.all(rule, &named, objects, &mut known.lists).await?;
    scan.found.complete = complete;
    Ok(scan.found)
}

/// Returns a later state than the one that named the needed objects: for a deliberate mistake.
async fn later(log: &mut Log) -> Result<Manifest, LogError> {
    log.catch_up().await?;
    Ok(log.manifest().clone())
}

impl Segments {
    /// Returns the keys that the fold needs.
    async fn named(
        &mut self,
        log: &mut Log,
        rule: &Reclaim<'_>,
        requests: &mut Requests,
    ) -> Result<ReferencedObjects, LogError> {
        let watermark = rule.watermark();
        let mut named = ReferencedObjects::from_manifest(log.manifest(), watermark);
        let numbers = retained_segments(log.manifest(), watermark);
        self.0.retain(|number, _| numbers.contains(number));
        for number in numbers {
            let segment = if let Some(segment) = self.0.get(&number) {
                Arc::clone(segment)
            } else {
                requests.gets += 1;
                log.segment(number, None).await?
            };
            let last = segment.steps.last().map(|step| step.step + 1);
            debug_assert_eq!(last, Some((number + 1) * SEGMENT_STEPS));
            segment
                .steps
                .iter()
                .for_each(|step| named.step(step, watermark));
            if self.0.len() < SEGMENTS_KEPT {
                self.0.insert(number, segment);
            }
        }
        Ok(named)
    }
}

struct Scan {
    store: Arc<dyn Store>,
    keep: Keep,
    found: Found,
}

impl Scan {
    /// Returns false when there are more dead objects than are to be remembered.
    async fn all(
        &mut self,
        rule: &Reclaim<'_>,
        named: &ReferencedObjects,
        objects: &ObjectsByJob,
        lists: &mut InputLists,
    ) -> Result<bool, LogError> {
        let objects_of = |key: &str| {
            let owner = keys::parse_owner(key)?;
            objects.get(&owner.job)
        };
        Ok(self
            .class(Class::Data, keys::DATA, |key| rule.data(key, named))
            .await?
            && self
                .class(Class::Intents, keys::INTENTS, |key| rule.intent(key))
                .await?
            && self.snapshots(rule).await?
            && self
                .class(Class::Index, keys::INDEX, |key| rule.segment(key))
                .await?
            && self.inputs(rule, lists).await?
            && self
                .class(Class::Jobs, keys::JOBS, |key| {
                    rule.job(key, objects_of(key))
                })
                .await?
            && self.uploads(rule).await?)
    }

    async fn class(
        &mut self,
        class: Class,
        prefix: &str,
        fate: impl Fn(&str) -> Fate + Send + Sync,
    ) -> Result<bool, StoreError> {
        let (keep, found) = (self.keep, &mut self.found);
        let mut pages = 0;
        let whole = each(self.store.as_ref(), prefix, &mut pages, |object| {
            let fate = fate(&object.key);
            found.note(class, object, fate, keep)
        })
        .await;
        self.found.requests.lists += pages;
        whole
    }

    /// Scans links of input lists; those that depend on unread lists are decided after these are read.
    async fn inputs(
        &mut self,
        rule: &Reclaim<'_>,
        lists: &mut InputLists,
    ) -> Result<bool, LogError> {
        let (keep, found) = (self.keep, &mut self.found);
        let (mut waiting, mut pages) = (Vec::new(), 0);
        let whole = each(self.store.as_ref(), keys::INPUTS, &mut pages, |object| {
            let unread = Cell::new(false);
            let fate = rule.inputs(&object.key, |producer| {
                let links = lists.get(rule, producer);
                unread.set(links.is_none());
                links
            });
            if unread.get() && waiting.len() < WAITING_MAX {
                waiting.push(object);
                return true;
            }
            !unread.get() && found.note(Class::Inputs, object, fate, keep)
        })
        .await?;
        found.requests.lists += pages;
        let gets = &mut found.requests.gets;
        lists
            .read(self.store.as_ref(), rule, &waiting, gets)
            .await?;
        let of = |producer: &ProducerName| lists.get(rule, producer);
        let noted = waiting.into_iter().all(|object| {
            let fate = rule.inputs(&object.key, of);
            self.found.note(Class::Inputs, object, fate, keep)
        });
        Ok(whole && noted)
    }

    async fn snapshots(&mut self, rule: &Reclaim<'_>) -> Result<bool, StoreError> {
        let mut listed = Vec::new();
        let lists = &mut self.found.requests.lists;
        each(self.store.as_ref(), keys::SNAPSHOTS, lists, |object| {
            listed.push(object);
            true
        })
        .await?;
        let versions = listed.iter().filter_map(|o| keys::snapshot_version(&o.key));
        let dead: BTreeSet<_> = rule
            .snapshots(&versions.collect::<Vec<_>>())
            .into_iter()
            .collect();
        for object in listed {
            let fate = match keys::snapshot_version(&object.key) {
                None => Fate::Foreign,
                Some(version) if dead.contains(&version) => Fate::Dead,
                Some(_) => Fate::Needed,
            };
            if !self.found.note(Class::Snapshots, object, fate, self.keep) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Scans unfinished uploads. Not every store lists them, and not every client may.
    async fn uploads(&mut self, rule: &Reclaim<'_>) -> Result<bool, StoreError> {
        self.found.requests.lists += 1;
        let uploads = match self.store.unfinished(keys::DATA).await {
            Ok(uploads) => uploads,
            Err(e) if matches!(e.kind, ErrorKind::Contract | ErrorKind::Denied) => {
                debug!(error = %e, "cannot list unfinished uploads");
                return Ok(true);
            }
            Err(e) => return Err(e),
        };
        for upload in uploads {
            let fate = match upload.key.as_str() {
                "" => Fate::Dead,
                key => rule.upload(key),
            };
            let key = upload.key.clone();
            let object = ObjectMeta::new(key, 0);
            if fate != Fate::Dead {
                self.found.count(Class::Uploads, &object, fate);
            } else if self.keep.stop && self.found.full(self.keep) {
                return Ok(false);
            } else {
                self.found.count(Class::Uploads, &object, fate);
                self.found.uploads.push(upload);
            }
        }
        Ok(true)
    }
}

impl Found {
    /// Counts one object; returns false when it is dead and no more are to be remembered.
    fn note(&mut self, class: Class, object: ObjectMeta, fate: Fate, keep: Keep) -> bool {
        if fate == Fate::Dead && keep.stop && self.full(keep) {
            return false;
        }
        self.count(class, &object, fate);
        if fate == Fate::Dead && !self.full(keep) {
            self.dead.push(Dead {
                class,
                key: object.key,
                bytes: object.size,
            });
        }
        true
    }

    fn full(&self, keep: Keep) -> bool {
        (self.dead.len() + self.uploads.len()) as u64 >= keep.keys
    }

    fn count(&mut self, class: Class, object: &ObjectMeta, fate: Fate) {
        let totals = self.totals.entry(class).or_default();
        match fate {
            Fate::Needed => totals.needed.add(object.size),
            Fate::Uncommitted => totals.uncommitted.add(object.size),
            Fate::Dead => totals.dead.add(object.size),
            Fate::Foreign => totals.foreign.add(object.size),
        }
    }
}
