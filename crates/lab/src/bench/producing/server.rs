//! A `dev-s3` in a separate process, so that its CPU time can be separated.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave_store::Store;

use crate::demo::s3_server::S3Server;
use crate::error::bench_error;
use batchweave_console::CliError;

const BUCKET: &str = "batchweave-bench";
const STOP: Duration = Duration::from_secs(15);

pub(super) struct Server(S3Server);

impl Server {
    pub(super) async fn start(folder: &Path) -> Result<Self, CliError> {
        let log = folder.join("dev-s3.log");
        let server = S3Server::start(std::env::current_exe()?, BUCKET, &[], log).await?;
        Ok(Self(server))
    }

    pub(super) async fn store(&self, stream: &str) -> Result<Arc<dyn Store>, CliError> {
        let url = format!("s3://{BUCKET}/{stream}");
        Ok(batchweave_store::open(&url, &self.0.options).await?)
    }

    /// Returns its process id as text.
    pub(super) fn process(&self) -> Result<String, CliError> {
        let pid = self
            .0
            .running
            .pid()
            .ok_or_else(|| bench_error("the S3 server has ended"))?;
        Ok(pid.to_string())
    }

    pub(super) async fn stop(mut self) -> Result<(), CliError> {
        self.0.running.stop(STOP).await?;
        Ok(())
    }
}
