//! A `dev-s3` in a process of its own, so that its CPU time can be told from ours.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchweave_store::{AccessKeys, OpenOptions, Store};

use super::wrong;
use crate::demo::processes::{Program, Running};
use crate::error::CliError;

const BUCKET: &str = "batchweave-bench";
const STOP: Duration = Duration::from_secs(15);

pub(super) struct Server {
    running: Running,
    options: OpenOptions,
}

impl Server {
    pub(super) async fn start(folder: &Path) -> Result<Self, CliError> {
        let args = ["dev-s3", "--listen", "127.0.0.1:0", "--json"];
        let program = Program {
            name: "dev-s3".to_owned(),
            path: std::env::current_exe()?,
            args: [&args[..], &["--bucket", BUCKET]]
                .concat()
                .iter()
                .map(|arg| (*arg).to_owned())
                .collect(),
            env: Vec::new(),
            log: folder.join("dev-s3.log"),
        };
        let (mut running, line) = program.start_with_line().await?;
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let field = |name: &str| ready[name].as_str().map(str::to_owned);
        let (Some(endpoint), Some(id), Some(secret), Some(region)) = (
            field("endpoint"),
            field("access_key"),
            field("secret_key"),
            field("region"),
        ) else {
            return Err(running.failed("printed something unexpected").into());
        };
        let options = OpenOptions {
            endpoint: Some(endpoint),
            region: Some(region),
            keys: Some(AccessKeys { id, secret }),
            ..OpenOptions::default()
        };
        Ok(Self { running, options })
    }

    pub(super) async fn store(&self, stream: &str) -> Result<Arc<dyn Store>, CliError> {
        let url = format!("s3://{BUCKET}/{stream}");
        Ok(batchweave_store::open(&url, &self.options).await?)
    }

    /// Its name below `/proc`.
    pub(super) fn process(&self) -> Result<String, CliError> {
        let pid = self.running.pid();
        let pid = pid.ok_or_else(|| wrong("the S3 server has ended"))?;
        Ok(pid.to_string())
    }

    pub(super) async fn stop(mut self) -> Result<(), CliError> {
        self.running.stop(STOP).await?;
        Ok(())
    }
}
