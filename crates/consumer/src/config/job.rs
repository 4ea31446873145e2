//! `[job]`: whom the daemon serves, and how it opens its job in the log.

use batchweave_core::ids::{JobName, Step};
use batchweave_daemon::config::Period;
use serde::{Deserialize, Serialize};

/// `[job]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobTable {
    /// The only job served; empty: any.
    pub name: String,
    /// Open it when it is not open.
    pub open: bool,
    /// First step that it will ask for.
    pub start: Step,
    /// Restart points for which data is kept.
    pub keep: u32,
    /// Whether it keeps data from reclamation.
    pub holds: bool,
    /// Whether it holds producers back.
    pub paces: bool,
    /// Without a sign of life for so long, a reclaimer may close it; 0s: never.
    pub lease: Period,
    /// Who must mark a checkpoint.
    pub checkpoints: Checkpoints,
    /// Steps after which progress is stored.
    pub progress_steps: u64,
    /// How long ranks wait for their job and attempt to be opened.
    pub open_within: Period,
}

/// Who must mark a checkpoint until it counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkpoints {
    /// Every data coordinate.
    #[default]
    All,
    /// Data coordinate 0, for all.
    Rank0,
}

impl Default for JobTable {
    fn default() -> Self {
        Self {
            name: String::new(),
            open: false,
            start: 0,
            keep: 2,
            holds: true,
            paces: true,
            lease: Period::millis(0),
            checkpoints: Checkpoints::All,
            progress_steps: 64,
            open_within: Period::millis(60_000),
        }
    }
}

impl JobTable {
    /// The lease as the log has it.
    pub fn lease_seconds(&self) -> Option<u64> {
        Some(self.lease.0.as_secs()).filter(|seconds| *seconds > 0)
    }

    pub(super) fn check(&self, problem: &mut impl FnMut(&str, String)) {
        if !self.name.is_empty()
            && let Err(why) = self.name.parse::<JobName>()
        {
            problem("job.name", why.to_string());
        }
        if self.open && self.name.is_empty() {
            let message = "needs job.name: the daemon opens one job, by its name".into();
            problem("job.open", message);
        }
        if self.keep == 0 {
            let message = "must be at least 1: with 0 restart points nothing would be kept to \
                           restart from"
                .into();
            problem("job.keep", message);
        }
        if self.lease.0.subsec_nanos() > 0 {
            problem(
                "job.lease",
                format!("{} is not a whole number of seconds", self.lease),
            );
        }
        if self.progress_steps == 0 {
            problem("job.progress_steps", "must be at least 1".into());
        }
        if self.start >= 1 << 53 {
            problem("job.start", format!("{} is not a step", self.start));
        }
    }
}
