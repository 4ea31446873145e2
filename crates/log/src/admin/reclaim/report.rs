//! The results of a pass, in numbers.

use std::collections::BTreeMap;

use batchweave_core::ids::{JobName, Step, Version};
use batchweave_core::retention::{Due, WatermarkRefused};
use batchweave_store::StoreError;
use serde::Serialize;

use crate::error::LogError;

/// Refused keys that are reported one by one.
const REFUSED_REPORTED: usize = 16;

/// An error of a plan or a pass.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReclaimError {
    /// The log or the store failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The requested watermark is not possible.
    #[error(transparent)]
    Asked(#[from] WatermarkRefused),
}

/// The classes of objects that are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Data objects: reclaimed ones and orphans.
    Data,
    /// Intents that can never be valid again.
    Intents,
    /// Snapshots but for the newest.
    Snapshots,
    /// Index segments below the watermark.
    Index,
    /// Links of input lists to which no cursor refers.
    Inputs,
    /// Marks and progress that no longer count.
    Jobs,
    /// Unfinished uploads of epochs that are over.
    Uploads,
}

impl Class {
    /// All classes, in the order in which they are deleted.
    pub const ALL: [Self; 7] = [
        Self::Data,
        Self::Intents,
        Self::Snapshots,
        Self::Index,
        Self::Jobs,
        Self::Inputs,
        Self::Uploads,
    ];

    /// Returns the name in messages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Intents => "intents",
            Self::Snapshots => "snapshots",
            Self::Index => "index",
            Self::Inputs => "inputs",
            Self::Jobs => "jobs",
            Self::Uploads => "uploads",
        }
    }
}

/// Objects and their bytes. The sizes of unfinished uploads are unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub objects: u64,
    pub bytes: u64,
}

impl Tally {
    pub(super) fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

/// The objects of one class that a scan has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub needed: Tally,
    /// Not named by any entry, but one still may.
    pub uncommitted: Tally,
    pub dead: Tally,
    /// Not named like objects of this program; never deleted.
    pub foreign: Tally,
}

/// Requests of a plan or pass, other than those of following the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    pub lists: u64,
    /// Index segments, marks and progress objects read.
    pub gets: u64,
    /// Records put, lost races included.
    pub puts: u64,
    /// Deletions, of a thousand keys each, and aborted uploads.
    pub deletes: u64,
}

/// A key that the store did not delete.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The key; of a request that failed as a whole, its first key.
    pub key: String,
    pub error: StoreError,
}

/// The results of a pass.
#[derive(Debug, Clone, Default)]
pub struct ReclaimReport {
    /// The watermark before the pass.
    pub watermark_before: Step,
    /// The watermark by which the pass deleted.
    pub watermark: Step,
    /// The head of the fold by which the pass deleted.
    pub head: Step,
    /// The version of the watermark's record, if this pass put one.
    pub published: Option<Version>,
    /// Why this pass put none.
    pub due: Option<Due>,
    /// Lost races for a version; after each of them everything was read again.
    pub lost_races: u64,
    /// Jobs closed because their lease had run out.
    pub closed: Vec<JobName>,
    /// The objects seen, by class.
    pub totals: BTreeMap<Class, Totals>,
    /// The objects deleted, by class.
    pub deleted: BTreeMap<Class, Tally>,
    /// The first keys that the store did not delete.
    pub refused: Vec<Refused>,
    /// The number of keys that the store did not delete.
    pub refused_keys: u64,
    /// The error at which the pass ended early.
    pub stopped: Option<StoreError>,
    /// More objects are to be deleted: the limit was reached, or keys were refused.
    pub more: bool,
    pub requests: Requests,
}

impl ReclaimReport {
    /// The number of steps reclaimed by this pass.
    pub fn steps(&self) -> u64 {
        self.watermark.saturating_sub(self.watermark_before)
    }

    /// Returns the sum over all classes of deleted objects.
    pub fn deleted_in_all(&self) -> Tally {
        let sum = |all: Tally, one: &Tally| Tally {
            objects: all.objects + one.objects,
            bytes: all.bytes + one.bytes,
        };
        self.deleted.values().fold(Tally::default(), sum)
    }

    pub(super) fn refuse(&mut self, key: String, error: StoreError, keys: u64) {
        self.refused_keys += keys;
        self.more = true;
        if self.refused.len() < REFUSED_REPORTED {
            self.refused.push(Refused { key, error });
        }
    }
}
