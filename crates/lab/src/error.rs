//! Conversion of this crate's errors to [`CliError`], which carries the message and the exit code.

use std::fmt::Display;

use batchweave_console::CliError;

use crate::demo::DemoError;

/// Returns the error of a measurement that began and failed.
pub(crate) fn bench_error(why: impl Display) -> CliError {
    CliError::Failed(format!("the measurement failed: {why}"))
}

impl From<DemoError> for CliError {
    fn from(error: DemoError) -> Self {
        match error {
            DemoError::Usage(why) => Self::Usage(why),
            other => Self::Failed(other.to_string()),
        }
    }
}
