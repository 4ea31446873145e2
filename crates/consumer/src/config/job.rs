//! `[job]`: the job that the daemon serves, and how it opens it in the log.

use batchweave_core::ids::{JobName, Step};
use batchweave_daemon::config::Period;
use serde::{Deserialize, Serialize};

/// `[job]`: the job that the daemon serves and opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobTable {
    /// The only job served; empty: any, or those of `names`.
    pub name: String,
    /// The only jobs served, in place of `name`.
    pub names: Vec<String>,
    /// Whether to open the job if it is not open.
    pub open: bool,
    /// First step that the job reads; 0 is the first of the stream.
    pub start: Step,
    /// Number of restart points for which data is kept.
    pub keep: u32,
    /// Whether the job protects data from reclamation.
    pub holds: bool,
    /// Whether producers wait for the job.
    pub paces: bool,
    /// A reclaimer may close the job after this time without a heartbeat; 0s: never.
    pub lease: Period,
    /// The data coordinates that must mark a checkpoint.
    pub checkpoints: Checkpoints,
    /// Progress is stored every this many steps.
    pub progress_steps: u64,
    /// Longest time that ranks wait for their job and attempt to be opened.
    pub open_within: Period,
}

/// The data coordinates that must mark a checkpoint before it counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkpoints {
    #[default]
    All,
    /// Data coordinate 0, on behalf of all.
    Rank0,
}

impl Default for JobTable {
    fn default() -> Self {
        Self {
            name: String::new(),
            names: Vec::new(),
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
    /// Returns the only jobs served; none when any is.
    pub fn served(&self) -> &[String] {
        if self.names.is_empty() && !self.name.is_empty() {
            return std::slice::from_ref(&self.name);
        }
        &self.names
    }

    /// Returns the lease as it is recorded in the log; `None` without one.
    pub fn lease_seconds(&self) -> Option<u64> {
        Some(self.lease.0.as_secs()).filter(|seconds| *seconds > 0)
    }

    pub(super) fn check(&self, problem: &mut impl FnMut(&str, String)) {
        if !self.name.is_empty() {
            if let Err(why) = self.name.parse::<JobName>() {
                problem("job.name", why.to_string());
            }
            if !self.names.is_empty() {
                let message = "give job.name for one job or job.names for several".into();
                problem("job.names", message);
            }
        }
        self.check_names(problem);
        if self.open && self.served().is_empty() {
            let message =
                "needs job.name or job.names: the daemon opens jobs by their names".into();
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

    fn check_names(&self, problem: &mut impl FnMut(&str, String)) {
        for (number, name) in self.names.iter().enumerate() {
            if let Err(why) = name.parse::<JobName>() {
                problem("job.names", why.to_string());
            }
            if self.names[..number].contains(name) {
                problem(
                    "job.names",
                    format!("{name:?} is listed twice; list it once"),
                );
            }
        }
    }
}
