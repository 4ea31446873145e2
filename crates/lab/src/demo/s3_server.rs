//! A `dev-s3` in a separate process, for the demo and for benchmarks.

use std::path::PathBuf;

use batchweave_store::{AccessKeys, OpenOptions};

use super::DemoError;
use super::processes::{Program, Running};

pub(crate) struct S3Server {
    pub(crate) running: Running,
    pub(crate) endpoint: String,
    /// Options for stores that this process opens.
    pub(crate) options: OpenOptions,
    /// Environment for programs that this process starts.
    pub(crate) env: Vec<(String, String)>,
}

/// The fields of the line that the server prints when it is ready.
struct Ready {
    endpoint: String,
    id: String,
    secret: String,
    region: String,
}

impl Ready {
    fn from_line(line: &str) -> Option<Self> {
        let ready: serde_json::Value = serde_json::from_str(line).ok()?;
        let field = |name: &str| ready[name].as_str().map(str::to_owned);
        Some(Self {
            endpoint: field("endpoint")?,
            id: field("access_key")?,
            secret: field("secret_key")?,
            region: field("region")?,
        })
    }
}

impl S3Server {
    /// Starts this program's `dev-s3` on a free port, with one bucket and the arguments `more`.
    pub(crate) async fn start(
        program: PathBuf,
        bucket: &str,
        more: &[&str],
        log: PathBuf,
    ) -> Result<Self, DemoError> {
        let args = ["dev-s3", "--listen", "127.0.0.1:0", "--json", "--bucket"]
            .iter()
            .chain([&bucket])
            .chain(more);
        let program = Program {
            name: "dev-s3".to_owned(),
            path: program,
            args: args.map(|arg| (*arg).to_owned()).collect(),
            env: Vec::new(),
            log,
        };
        let (mut running, line) = program.start_with_line().await?;
        let Some(Ready {
            endpoint,
            id,
            secret,
            region,
        }) = Ready::from_line(&line)
        else {
            return Err(running.failed("printed something unexpected"));
        };
        let env = [
            ("AWS_ACCESS_KEY_ID", &id),
            ("AWS_SECRET_ACCESS_KEY", &secret),
            ("AWS_REGION", &region),
            ("AWS_ENDPOINT_URL", &endpoint),
        ];
        Ok(Self {
            env: env
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .into(),
            options: OpenOptions {
                endpoint: Some(endpoint.clone()),
                region: Some(region),
                keys: Some(AccessKeys { id, secret }),
                ..OpenOptions::default()
            },
            running,
            endpoint,
        })
    }
}
