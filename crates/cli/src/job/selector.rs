//! The argument that names a job, as `llm` or `llm@4`.

use std::fmt::{self, Display};
use std::str::FromStr;

use batchweave_core::ids::{IdError, JobName, Version};
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::JobState;

use crate::admin;
use crate::error::CliError;

/// `llm`, or `llm@4` for the incarnation that version 4 opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobSelector {
    pub(crate) name: JobName,
    pub(crate) opened: Option<Version>,
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
    pub(super) fn find<'m>(&self, m: &'m Manifest) -> Result<&'m JobState, CliError> {
        let state = m.jobs().get(&self.name);
        let meant = state.filter(|job| self.opened.is_none_or(|v| v == job.opened));
        meant.ok_or_else(|| {
            let why = admin::not_open(m, &self.name);
            CliError::Absent(format!(
                "job {self} is not open: {why} (`batchweave log` shows earlier ones)"
            ))
        })
    }
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
