//! The survey of the data, by the producer's program: it alone contains the readers of all formats.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use batchweave_console::CliError;
use batchweave_console::programs::{self, Name};
use batchweave_daemon::survey::{SURVEY, Survey};
use tokio::process::Command;

use super::QuickstartError;

/// Fails if nothing on this machine has the path `data`.
pub(super) fn check_path(data: &Path) -> Result<(), QuickstartError> {
    if data.to_str().is_none_or(|path| path.contains("://")) {
        return Err(QuickstartError::NotLocal(data.to_owned()));
    }
    if !data.try_exists().unwrap_or(true) {
        return Err(QuickstartError::NoData(data.to_owned()));
    }
    Ok(())
}

/// Returns the survey of the files at `data`; the stream's files will lie in `into`, and `outputs` are left out.
pub(super) async fn survey(
    data: &Path,
    into: &Path,
    outputs: Vec<PathBuf>,
) -> Result<Survey, CliError> {
    let mut command = Command::from(programs::start(Name::Producer).command());
    command.arg(SURVEY).arg(data).arg(into).args(outputs);
    let ended = command
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(QuickstartError::NoProducer)?;
    if !ended.status.success() {
        let why = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        return Err(CliError::Input(why));
    }
    serde_json::from_slice(&ended.stdout).map_err(|why| QuickstartError::OtherProducer(why).into())
}
