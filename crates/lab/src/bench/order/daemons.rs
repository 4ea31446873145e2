//! Producer daemons that read an input in order or shuffled, as processes with configuration files.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use batchweave_console::CliError;
use batchweave_console::programs::{self, Name, Start};
use batchweave_daemon::config::ByteSize;
use batchweave_dev_s3::{LatencyProfile, Options, Server};
use batchweave_store::{AccessKeys, OpenOptions};

use crate::demo::processes::{Program, Running};
use crate::error::bench_error;

/// The bucket of the input.
const BUCKET: &str = "batchweave";
const POLL: Duration = Duration::from_millis(2);

/// The input and the way in which it is read.
pub(super) struct Task<'a> {
    /// A path or pattern.
    pub(super) input: String,
    /// With a window it is shuffled.
    pub(super) window: Option<ByteSize>,
    /// Producers that share the input, each with one process.
    pub(super) producers: u32,
    /// The lines of the table `[tokenizer]`.
    pub(super) tokenizer: &'static str,
    /// The server of an input in S3.
    pub(super) server: Option<&'a InputServer>,
}

/// A folder for streams, configurations and logs, and the producer's program.
pub(super) struct Daemons {
    folder: PathBuf,
    producer: Start,
    runs: u32,
}

impl Daemons {
    pub(super) fn new(folder: &Path) -> Result<Self, CliError> {
        let producer = programs::find(Name::Producer);
        Ok(Self {
            folder: folder.to_owned(),
            producer: producer.ok_or_else(|| CliError::Usage(programs::missing(Name::Producer)))?,
            runs: 0,
        })
    }

    /// Runs the producers of a new stream to the end of the input. Returns the seconds from the start of the first
    /// process to the end of the last one.
    pub(super) async fn run(&mut self, task: &Task<'_>) -> Result<f64, CliError> {
        self.runs += 1;
        let stream = self.folder.join(format!("stream-{}", self.runs));
        fs::create_dir_all(&stream)?;
        let began = Instant::now();
        let mut running = Vec::new();
        for index in 0..task.producers {
            running.push(self.start(task, &stream, index)?);
        }
        for producer in &mut running {
            finish(producer).await?;
        }
        let seconds = began.elapsed().as_secs_f64();
        fs::remove_dir_all(&stream)?;
        Ok(seconds)
    }

    fn start(&self, task: &Task<'_>, stream: &Path, index: u32) -> Result<Running, CliError> {
        let name = format!("run-{}-{index}", self.runs);
        let path = |end: &str| self.folder.join(format!("{name}.{end}"));
        fs::write(path("toml"), config(task, stream, index))?;
        let args = ["--config".to_owned(), path("toml").display().to_string()];
        let first = self.producer.first.map(str::to_owned).into_iter();
        let program = Program {
            path: self.producer.path.clone(),
            args: first.chain(args).collect(),
            env: task.server.map(InputServer::env).unwrap_or_default(),
            log: path("log"),
            name,
        };
        Ok(program.start()?)
    }
}

async fn finish(producer: &mut Running) -> Result<(), CliError> {
    loop {
        match producer.ended() {
            Some(status) if status.success() => return Ok(()),
            Some(_) => return Err(producer.failed("failed").into()),
            None => tokio::time::sleep(POLL).await,
        }
    }
}

fn config(task: &Task<'_>, stream: &Path, index: u32) -> String {
    let names: Vec<String> = (0..task.producers).map(|n| format!("p{n}")).collect();
    let mut text = format!(
        "[store]\nurl = {:?}\n[stream]\nslices = 8\nrows_per_slice = 8\nseq_len = 2048\nproducers = {names:?}\n\
         [producer]\nname = {:?}\nindex = {index}\nof = {}\n[tokenizer]\n{}\n[packing]\nlast_batch = \"pad\"\n[source]\n",
        format!("file://{}", stream.display()),
        names[index as usize],
        task.producers,
        task.tokenizer,
    );
    if let Some(server) = task.server {
        let _ = writeln!(text, "endpoint = {:?}", server.server.endpoint());
    }
    match task.window {
        None => {
            let _ = writeln!(text, "paths = [{:?}]", task.input);
        }
        Some(window) => {
            let _ = write!(
                text,
                "[[sources]]\nname = \"all\"\npaths = [{:?}]\nshuffle = {{ seed = 1, window = \"{window}\" }}\n",
                task.input
            );
        }
    }
    text
}

/// A `dev-s3` in this process, with the input.
pub(super) struct InputServer {
    pub(super) server: Server,
    options: Options,
}

impl InputServer {
    /// Starts a server that keeps the files of `input` in `folder`, and answers with this latency.
    pub(super) async fn start(
        input: &[PathBuf],
        folder: &Path,
        latency: LatencyProfile,
    ) -> Result<Self, CliError> {
        let options = Options {
            dir: Some(folder.to_owned()),
            latency,
            ..Options::default()
        };
        let server = Server::start(options.clone()).await.map_err(bench_error)?;
        let own = Self { server, options };
        let open = OpenOptions {
            endpoint: Some(own.server.endpoint()),
            region: Some("us-east-1".to_owned()),
            keys: Some(AccessKeys {
                id: own.options.access_key.clone(),
                secret: own.options.secret_key.clone(),
            }),
            ..OpenOptions::default()
        };
        let store = batchweave_store::open(&format!("s3://{BUCKET}/input"), &open).await?;
        for path in input {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // The folder is new.
            let _ = store.upload(&name, fs::read(path)?.into()).await?;
        }
        Ok(own)
    }

    /// Returns a pattern of the input.
    pub(super) fn input() -> String {
        format!("s3://{BUCKET}/input/*")
    }

    fn env(&self) -> Vec<(String, String)> {
        let env = [
            ("AWS_ACCESS_KEY_ID", self.options.access_key.as_str()),
            ("AWS_SECRET_ACCESS_KEY", &self.options.secret_key),
            ("AWS_REGION", "us-east-1"),
        ];
        env.map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }
}
