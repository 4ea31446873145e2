//! The result of one check, with its remedy.

use batchweave_console::CliError;
use batchweave_daemon::Exit;
use batchweave_store::{ErrorKind, StoreError};
use serde::Serialize;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    Ok,
    Warn,
    Fail,
    NotChecked,
}

/// The groups in which findings are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Group {
    Access,
    Contract,
    Permissions,
    Rules,
    Latency,
    Stream,
}

impl Group {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Contract => "contract of the store",
            Self::Permissions => "permissions of these credentials",
            Self::Rules => "rules of the bucket",
            Self::Latency => "latency",
            Self::Stream => "stream",
        }
    }
}

/// A finding as it is reported.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub(super) group: Group,
    #[serde(flatten)]
    pub(super) finding: Finding,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    pub(super) name: String,
    pub(super) verdict: Level,
    pub(super) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
    #[serde(skip)]
    pub(super) exit: Exit,
}

impl Finding {
    fn new(name: &str, verdict: Level, detail: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            verdict,
            detail: detail.into(),
            remedy: None,
            exit: Exit::Ok,
        }
    }

    pub(super) fn ok(name: &str, detail: impl Into<String>) -> Self {
        Self::new(name, Level::Ok, detail)
    }

    pub(super) fn unchecked(name: &str, why: impl Into<String>) -> Self {
        Self::new(name, Level::NotChecked, why)
    }

    pub(super) fn warn(name: &str, detail: impl Into<String>, remedy: &str) -> Self {
        Self::new(name, Level::Warn, detail).with_remedy(remedy)
    }

    pub(super) fn fail(name: &str, detail: impl Into<String>, remedy: &str, exit: Exit) -> Self {
        let finding = Self::new(name, Level::Fail, detail).with_remedy(remedy);
        Self { exit, ..finding }
    }

    /// Returns a failure for a store that broke a guarantee.
    pub(super) fn broken(name: &str, detail: impl Into<String>) -> Self {
        let remedy = "streams need a store with this guarantee: use another, or a newer version";
        Self::fail(name, detail, remedy, Exit::StreamRefused)
    }

    /// Returns a failure for a failed request.
    pub(super) fn failed(name: &str, error: &StoreError) -> Self {
        let exit = CliError::from(error.clone()).exit();
        let detail = match error.kind {
            ErrorKind::Unreachable | ErrorKind::NoBucket | ErrorKind::Contract => {
                error.detail.clone()
            }
            _ => format!("{}: {}", error.op.name(), error.detail),
        };
        Self::fail(name, detail, error.remedy(), exit)
    }

    pub(super) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into()).filter(|text| !text.is_empty());
        Self { remedy, ..self }
    }
}
