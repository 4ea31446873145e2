//! `[reclaim]`: reclamation as a background task of this daemon.

use std::time::Duration;

use batchweave_core::retention::reclaim::KEEP_LOSSES;
use batchweave_daemon::config::Period;
use serde::{Deserialize, Serialize};

/// `[reclaim]`: deleting old data in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReclaimTable {
    /// Whether this daemon reclaims.
    pub enabled: bool,
    /// Time between two passes.
    pub every: Period,
    /// Most objects that one pass deletes.
    pub max_delete: u64,
    /// Steps below the watermark whose losses are kept.
    pub keep_losses: u64,
}

impl Default for ReclaimTable {
    fn default() -> Self {
        Self {
            enabled: false,
            every: Period(Duration::from_mins(1)),
            max_delete: 10_000,
            keep_losses: KEEP_LOSSES,
        }
    }
}

impl ReclaimTable {
    pub(super) fn check(&self, problem: &mut impl FnMut(&str, String)) {
        if self.every.0 < Duration::from_secs(1) {
            let message = format!("{} is less than 1s: each pass lists the store", self.every);
            problem("reclaim.every", message);
        }
        if self.max_delete == 0 {
            let message = "0 would delete nothing: set reclaim.enabled = false for that";
            problem("reclaim.max_delete", message.into());
        }
    }
}
