//! Jobs in the words of the command line: the argument that names one, as `llm` or `llm@4`, the parameters of one, and
//! the open ones for the message that one is not open.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use batchweave_core::ids::{IdError, JobName, Version};
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::JobState;
use batchweave_daemon::config::Period;

use crate::error::CliError;
use crate::output::{count, joined};

/// `llm`, or `llm@4` for the incarnation that version 4 opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSelector {
    pub name: JobName,
    pub opened: Option<Version>,
}

impl FromStr for JobSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, opened) = match text.split_once('@') {
            None => (text, None),
            Some((name, version)) => {
                let bad = |_| format!("invalid version {version:?}: write NAME or NAME@VERSION");
                (name, Some(version.parse().map_err(bad)?))
            }
        };
        let name = name.parse().map_err(|e: IdError| e.to_string())?;
        Ok(Self { name, opened })
    }
}

impl Display for JobSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        self.opened.map_or(Ok(()), |v| write!(f, "@{v}"))
    }
}

impl JobSelector {
    /// Returns the open incarnation that is meant.
    pub fn find<'m>(&self, m: &'m Manifest) -> Result<&'m JobState, CliError> {
        let state = m.jobs().get(&self.name);
        let meant = state.filter(|job| self.opened.is_none_or(|v| v == job.opened));
        meant.ok_or_else(|| {
            let why = not_open(m, &self.name);
            CliError::Absent(format!(
                "job {self} is not open: {why} (`batchweave log` shows earlier ones)"
            ))
        })
    }
}

/// Explains why `job` is not found by listing the jobs that are open.
pub fn not_open(m: &Manifest, job: &JobName) -> String {
    if let Some(state) = m.jobs().get(job) {
        let (held, by) = (incarnation(job, state.opened), parameters(state));
        return format!("the open one is {held}, {by}");
    }
    let open = m
        .jobs()
        .iter()
        .map(|(name, state)| incarnation(name, state.opened));
    match joined(open, "").as_str() {
        "" => "no job is open".into(),
        open => format!("open are {open}"),
    }
}

/// Formats a job's name and the version that opened it, as `llm@4`.
pub fn incarnation(job: &JobName, opened: Version) -> String {
    format!("{job}@{opened}")
}

/// Describes the parameters that a job was opened with.
pub fn parameters(job: &JobState) -> String {
    let no = |does: bool| if does { "" } else { "no " };
    let lease = job.lease_seconds.map_or("no lease".to_owned(), |seconds| {
        format!("a lease of {}", Period(Duration::from_secs(seconds)))
    });
    format!(
        "from step {} on, keeps {}, holds {}data, paces {}producers, {lease}",
        job.start,
        count(job.keep.into(), "restart point"),
        no(job.holds),
        no(job.paces),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_is_named_by_its_version() {
        let which: JobSelector = "llm@4".parse().unwrap();
        assert_eq!((which.name.as_str(), which.opened), ("llm", Some(4)));
        assert_eq!("llm".parse::<JobSelector>().unwrap().opened, None);
        for bad in ["llm@", "llm@x", "@4", "LLM", "llm@4@5"] {
            assert!(bad.parse::<JobSelector>().is_err(), "{bad}");
        }
    }
}
