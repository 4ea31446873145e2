//! The store of the measured objects (a `dev-s3` process of this run, or the bucket of the command line)
//! and the programs that take part.

use std::path::{Path, PathBuf};

use batchweave_store::s3::S3Store;
use batchweave_store::{Location, OpenOptions};

use crate::bench::cpu::threads_seconds;
use crate::demo::processes::{Program, Running};
use crate::demo::s3_server::S3Server;
use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::programs::{self, Name};

const BUCKET: &str = "batchweave-bench";

pub(super) struct Place {
    pub(super) folder: PathBuf,
    pub(super) endpoint: Option<String>,
    bucket: String,
    prefix: String,
    options: OpenOptions,
    env: Vec<(String, String)>,
    /// The own server; killed when dropped.
    server: Option<Running>,
}

impl Place {
    pub(super) async fn new(context: &Context, folder: &Path) -> Result<Self, CliError> {
        let this = std::env::current_exe()?;
        let mut place = Self {
            folder: folder.to_path_buf(),
            endpoint: context.store_options().endpoint,
            bucket: BUCKET.to_owned(),
            prefix: format!("bench-fetch-{:08x}", rand::random::<u32>()),
            options: context.store_options(),
            env: Vec::new(),
            server: None,
        };
        match context.store_option() {
            None => place.start_server(this).await?,
            Some(url) => {
                let Ok(Location::S3 { bucket, prefix }) =
                    Location::parse(url.trim_end_matches('/'))
                else {
                    let text =
                        format!("--store {url}: expected s3://bucket/prefix to measure reads from");
                    return Err(CliError::Usage(text));
                };
                place.bucket = bucket.to_owned();
                if !prefix.is_empty() {
                    place.prefix = format!("{prefix}/{}", place.prefix);
                }
            }
        }
        Ok(place)
    }

    async fn start_server(&mut self, this: PathBuf) -> Result<(), CliError> {
        let log = self.folder.join("dev-s3.log");
        let server = S3Server::start(this, BUCKET, &[], log).await?;
        self.options = server.options;
        self.env = server.env;
        self.endpoint = Some(server.endpoint);
        self.server = Some(server.running);
        Ok(())
    }

    /// Returns the CPU seconds of the own server; `None` for a foreign one.
    pub(super) fn server_cpu(&self) -> Result<Option<f64>, CliError> {
        let pid = self.server.as_ref().and_then(Running::pid);
        pid.map(threads_seconds).transpose()
    }

    /// Opens a separate root for one case.
    pub(super) async fn store(&self, case: &str) -> Result<S3Store, CliError> {
        let prefix = format!("{}/{case}", self.prefix);
        Ok(S3Store::open(&self.bucket, &prefix, &self.options).await?)
    }

    /// Returns the consumer daemon for that root; `config` is its configuration without `[store]`.
    pub(super) fn consumer(&self, case: &str, config: &str) -> Result<Program, CliError> {
        let start = programs::find(Name::Consumer)
            .ok_or_else(|| CliError::Usage(programs::missing(Name::Consumer)))?;
        let prefix = format!("{}/{case}", self.prefix);
        let location = Location::S3 {
            bucket: &self.bucket,
            prefix: &prefix,
        };
        let url = location.to_string();
        let endpoint = self.endpoint.as_deref().unwrap_or_default();
        let region = self.options.region.as_deref().unwrap_or_default();
        let text = format!(
            "[store]\nurl = {url:?}\nendpoint = {endpoint:?}\nregion = {region:?}\n\n{config}"
        );
        let path = self.folder.join(format!("{case}.toml"));
        std::fs::write(&path, text)?;
        let file = path.display().to_string();
        let args = start.first.into_iter().chain(["--config", &file]);
        Ok(Program {
            name: "consumer".to_owned(),
            args: args.map(str::to_owned).collect(),
            path: start.path,
            env: self.env.clone(),
            log: self.folder.join("consumer.log"),
        })
    }
}
