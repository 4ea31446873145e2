//! What a pass has found and done, in numbers.

use std::collections::BTreeMap;

use batchweave_core::ids::{JobName, Step, Version};
use batchweave_core::retention::{Due, WatermarkRefused};
use batchweave_store::StoreError;

use super::scan::Found;
use crate::LogError;

/// Refusals that are told one by one.
const REFUSED_TOLD: usize = 16;

/// Why there is no plan, or no pass.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReclaimError {
    /// The log or the store failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// What a person has asked for can't be.
    #[error(transparent)]
    Asked(#[from] WatermarkRefused),
}

/// The kinds of objects that go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Objects of TGBs: reclaimed ones and orphans.
    Data,
    /// Intents that can never be valid again.
    Intents,
    /// Snapshots but for the newest.
    Snapshots,
    /// Index segments below the watermark.
    Index,
    /// Links of input lists that no cursor counts in.
    Inputs,
    /// Marks and progress that say nothing any more.
    Jobs,
    /// Unfinished uploads of epochs that are over.
    Uploads,
}

impl Class {
    /// All of them, in the order in which they are deleted.
    pub const ALL: [Self; 7] = [
        Self::Data,
        Self::Intents,
        Self::Snapshots,
        Self::Index,
        Self::Jobs,
        Self::Inputs,
        Self::Uploads,
    ];

    /// Its name in messages and metrics.
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

/// Objects and their bytes. The bytes of unfinished uploads are not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub objects: u64,
    /// Their sizes added up.
    pub bytes: u64,
}

impl Tally {
    pub(super) fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

/// What a scan has seen of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Needed.
    pub needed: Tally,
    /// Not named by any entry, but one still may.
    pub uncommitted: Tally,
    /// Nobody can need it any more.
    pub dead: Tally,
    /// Names that are none of ours; left alone.
    pub foreign: Tally,
}

/// Requests that a plan or pass has made itself, beside those of following the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Pages of listings.
    pub lists: u64,
    /// Index segments, marks and progress objects read.
    pub gets: u64,
    /// Records put, lost races included.
    pub puts: u64,
    /// Deletions, a thousand keys each, and uploads given up.
    pub deletes: u64,
}

/// A key that the store did not delete.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The key; the first of a request that failed as a whole.
    pub key: String,
    /// Why.
    pub error: StoreError,
}

/// What a pass has done.
#[derive(Debug, Clone, Default)]
pub struct ReclaimReport {
    /// The watermark at its beginning.
    pub watermark_before: Step,
    /// The watermark by which it has deleted.
    pub watermark: Step,
    /// The head of the fold by which it has deleted.
    pub head: Step,
    /// The version of the watermark's record, when this pass has published one.
    pub published: Option<Version>,
    /// Why it has published none.
    pub due: Option<Due>,
    /// Races for a version that it has lost, after each of which everything was read again.
    pub lost_races: u64,
    /// Jobs whose lease has run out, and which it has closed.
    pub closed: Vec<JobName>,
    /// What was seen, by class.
    pub totals: BTreeMap<Class, Totals>,
    /// What was deleted, by class.
    pub deleted: BTreeMap<Class, Tally>,
    /// The first keys that the store did not delete.
    pub refused: Vec<Refused>,
    /// How many there were.
    pub refused_keys: u64,
    /// The pass ended early by this.
    pub stopped: Option<StoreError>,
    /// There is more to delete: the cap was reached, or keys were refused.
    pub more: bool,
    /// What it cost.
    pub requests: Requests,
}

impl ReclaimReport {
    /// Steps that were given up by this pass.
    pub fn steps(&self) -> u64 {
        self.watermark.saturating_sub(self.watermark_before)
    }

    /// All that was deleted.
    pub fn deleted_in_all(&self) -> Tally {
        let sum = |all: Tally, one: &Tally| Tally {
            objects: all.objects + one.objects,
            bytes: all.bytes + one.bytes,
        };
        self.deleted.values().fold(Tally::default(), sum)
    }

    pub(super) fn take_scan(&mut self, found: &Found) {
        self.totals.clone_from(&found.totals);
        self.requests.lists += found.requests.lists;
        self.requests.gets += found.requests.gets;
        self.more = !found.complete;
    }

    pub(super) fn refuse(&mut self, key: String, error: StoreError, keys: u64) {
        self.refused_keys += keys;
        self.more = true;
        if self.refused.len() < REFUSED_TOLD {
            self.refused.push(Refused { key, error });
        }
    }
}
