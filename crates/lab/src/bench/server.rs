//! A `dev-s3` in a separate process, so that its CPU time can be separated.

use std::path::Path;

use batchweave_console::CliError;
use batchweave_store::s3::S3Store;

use super::cpu::threads_seconds;
use crate::demo::s3_server::S3Server;
use crate::error::bench_error;

const BUCKET: &str = "batchweave-bench";

/// The server, which is killed when dropped.
pub(super) struct Server(S3Server);

impl Server {
    pub(super) async fn start(folder: &Path) -> Result<Self, CliError> {
        let log = folder.join("dev-s3.log");
        let server = S3Server::start(std::env::current_exe()?, BUCKET, &[], log).await?;
        Ok(Self(server))
    }

    pub(super) async fn store(&self, stream: &str) -> Result<S3Store, CliError> {
        Ok(S3Store::open(BUCKET, stream, &self.0.options).await?)
    }

    /// Returns the location of a stream, for daemons with [`Self::env`].
    pub(super) fn url(stream: &str) -> String {
        format!("s3://{BUCKET}/{stream}")
    }

    pub(super) fn env(&self) -> Vec<(String, String)> {
        self.0.env.clone()
    }

    /// Returns its CPU seconds.
    pub(super) fn cpu(&self) -> Result<f64, CliError> {
        let pid = self.0.running.pid();
        threads_seconds(pid.ok_or_else(|| bench_error("the S3 server has ended"))?)
    }
}
