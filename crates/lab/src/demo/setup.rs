//! The demo's folder, store and configuration files, as a person would write them by hand.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use batchweave_console::programs::{self, Name, Start};
use batchweave_log::{Log, LogError, LogOptions};
use batchweave_store::OpenOptions;

use super::corpus::Corpus;
use super::mixture::{self, SHUFFLE, producer_name};
use super::order::DemoSource;
use super::processes::{Program, Running};
use super::s3_server::S3Server;
use super::shape::Shape;
use super::{DemoArgs, DemoError, DemoStore, RanksIn};

pub(crate) const RANKS: usize = 4;
pub(crate) const JOB: &str = "demo";
const BUCKET: &str = "batchweave-demo";
/// Steps from one checkpoint to the next; the end is one, too.
pub(crate) const MARK_EVERY: u64 = 40;
const STREAM_POLL: Duration = Duration::from_millis(15);
/// Milliseconds of training in all, so that processes are killed before the ranks end; per step at least 5.
const TRAINING_MS: u64 = 2_000;
const STEP_MS: RangeInclusive<u64> = 5..=100;
/// Checkpoints that the job keeps.
pub(crate) const KEEP: u32 = 3;
/// 16,384 tokens per step: a few hundred steps from the default corpus.
pub(crate) const SHAPE: Shape = Shape {
    slices: 8,
    rows_per_slice: 4,
    seq_len: 512,
    producers: 2,
};

/// The paths and settings of the processes.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) folder: PathBuf,
    pub(crate) url: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) options: OpenOptions,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) server: Option<Running>,
    producer: Start,
    consumer: Start,
    lab: Start,
}

impl Setup {
    /// Creates the folder's parts, and starts the embedded server if it is the store.
    pub(crate) async fn new(args: &DemoArgs, folder: &Path) -> Result<Self, DemoError> {
        let this = std::env::current_exe().map_err(|e| DemoError::io("find", folder, &e))?;
        let find =
            |name| programs::find(name).ok_or_else(|| DemoError::Usage(programs::missing(name)));
        for part in ["logs", "ranks"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(|e| DemoError::io("create", &path, &e))?;
        }
        let mut setup = Self {
            folder: folder.to_path_buf(),
            url: String::new(),
            endpoint: None,
            options: OpenOptions::default(),
            env: Vec::new(),
            server: None,
            producer: find(Name::Producer)?,
            consumer: find(Name::Consumer)?,
            lab: find(Name::Lab)?,
        };
        match &args.store {
            DemoStore::S3 => setup.start_server(&this).await?,
            DemoStore::File => {
                let stream = folder.join("stream");
                fs::create_dir_all(&stream).map_err(|e| DemoError::io("create", &stream, &e))?;
                setup.url = format!("file://{}", stream.display());
            }
            DemoStore::Url(url) => {
                setup.url.clone_from(url);
                setup.check_empty().await?;
            }
        }
        Ok(setup)
    }

    /// Fails where the root has objects: the demo counts steps and tokens from the first one on.
    async fn check_empty(&self) -> Result<(), DemoError> {
        // A root that cannot be read, the first producer explains.
        let Ok(store) = batchweave_store::open(&self.url, &self.options).await else {
            return Ok(());
        };
        let Ok(found) = store.list("", None).await else {
            return Ok(());
        };
        match found.objects.first() {
            Some(object) => Err(DemoError::Usage(format!(
                "{} is in use, it has {}; give an empty root of the demo's own with --store",
                self.url, object.key
            ))),
            None => Ok(()),
        }
    }

    async fn start_server(&mut self, this: &Path) -> Result<(), DemoError> {
        let log = self.folder.join("logs").join("dev-s3.log");
        let more = ["--latency", "s3-express", "--seed", "1"];
        let server = S3Server::start(this.to_path_buf(), BUCKET, &more, log).await?;
        self.options = server.options;
        self.env = server.env;
        self.url = format!("s3://{BUCKET}/stream");
        self.endpoint = Some(server.endpoint);
        self.server = Some(server.running);
        Ok(())
    }

    fn program(&self, name: &str, start: Start, args: &[&str]) -> Program {
        let args = start.first.iter().chain(args);
        Program {
            name: name.to_owned(),
            args: args.map(|a| (*a).to_owned()).collect(),
            path: start.path,
            env: self.env.clone(),
            log: self.folder.join("logs").join(format!("{name}.log")),
        }
    }

    fn configured(&self, daemon: &Start, name: &str, config: &str) -> Result<Program, DemoError> {
        let file = self.folder.join(format!("{name}.toml"));
        fs::write(&file, config).map_err(|e| DemoError::io("write", &file, &e))?;
        let path = file.display().to_string();
        Ok(self.program(name, daemon.clone(), &["--config", &path]))
    }

    fn store_section(&self) -> String {
        let endpoint = self
            .endpoint
            .as_ref()
            .map(|e| format!("endpoint = {e:?}\n"));
        format!(
            "[store]\nurl = {:?}\n{}",
            self.url,
            endpoint.unwrap_or_default()
        )
    }

    /// Returns the producer daemon `index`.
    pub(crate) fn producer(&self, index: usize, corpus: &Corpus) -> Result<Program, DemoError> {
        let sources: String = mixture::sources(corpus).iter().map(source_table).collect();
        let names: Vec<_> = (0..SHAPE.producers)
            .map(|n| format!("{:?}", producer_name(n)))
            .collect();
        let Shape {
            slices,
            rows_per_slice,
            seq_len,
            producers,
        } = SHAPE;
        let config = format!(
            "{store}\n\
             [stream]\nslices = {slices}\nrows_per_slice = {rows_per_slice}\nseq_len = {seq_len}\n\
             producers = [{names}]\n\n\
             [producer]\nname = {name:?}\nindex = {index}\nof = {producers}\n\n\
             {sources}\
             [tokenizer]\nkind = \"embedded\"\nname = \"cl100k_base\"\nthreads = 1\n\n\
             [packing]\nlast_batch = \"drop\"\nobject_bytes = \"128KiB\"\n\
             shuffle_rows = {{ tokens = {shuffled}, seed = {seed} }}\n\n\
             [commit]\nlinger = \"5ms\"\n",
            store = self.store_section(),
            name = producer_name(index),
            names = names.join(", "),
            shuffled = SHUFFLE.rows * SHAPE.advance(),
            seed = SHUFFLE.seed,
        );
        self.configured(&self.producer, &format!("producer-{index}"), &config)
    }

    /// Returns the consumer daemon of the only node.
    pub(crate) fn consumer(&self, admin: u16) -> Result<Program, DemoError> {
        let config = format!(
            "{store}\n\
             [job]\nname = {JOB:?}\nopen = true\nkeep = {KEEP}\nprogress_steps = 16\n\n\
             [reclaim]\nenabled = true\nevery = \"1s\"\n\n\
             [arena]\nbytes = \"32MiB\"\nsegment_bytes = \"4MiB\"\ngrow_after = \"1s\"\n\n\
             [socket]\npath = {socket:?}\n\n\
             [prefetch]\nbytes = \"512KiB\"\nsteps = 4\nconcurrency = 4\n\n\
             [follow]\nstarved = \"20ms\"\nidle = \"200ms\"\n\n\
             [admin]\nlisten = \"127.0.0.1:{admin}\"\n",
            store = self.store_section(),
            socket = self.socket(),
        );
        self.configured(&self.consumer, "consumer", &config)
    }

    /// Opens the stream once a producer has created it.
    pub(crate) async fn open_log(&self, producer: &mut Running) -> Result<Log, DemoError> {
        let failed = |e: &dyn std::fmt::Display| DemoError::Usage(e.to_string());
        let store = batchweave_store::open(&self.url, &self.options)
            .await
            .map_err(|e| failed(&e))?;
        let options = LogOptions {
            write_snapshots: false,
            ..LogOptions::new(rand::random())
        };
        loop {
            match Log::open(Arc::clone(&store), &options).await {
                Ok(log) => return Ok(log),
                Err(LogError::NoStream { .. }) if producer.ended().is_none() => {
                    tokio::time::sleep(STREAM_POLL).await;
                }
                Err(LogError::NoStream { .. }) => return Err(producer.failed("ended early")),
                Err(e) => return Err(failed(&e)),
            }
        }
    }

    fn socket(&self) -> String {
        self.folder.join("consumer.sock").display().to_string()
    }

    /// Returns the output file of rank `rank`, with every token that it received.
    pub(crate) fn rank_out(&self, rank: usize) -> PathBuf {
        self.folder.join("ranks").join(format!("{rank}.tokens"))
    }

    /// Returns the file with the times that each read of rank `rank` waited.
    pub(crate) fn rank_waits(&self, rank: usize) -> PathBuf {
        self.folder.join("ranks").join(format!("{rank}.waits"))
    }

    /// Returns the training rank `rank`.
    pub(crate) fn rank(&self, rank: usize, args: &DemoArgs, attempt: &str) -> Program {
        let state = self.folder.join("ranks").join(format!("{rank}.state"));
        let file = |path: PathBuf| path.display().to_string();
        let even = args
            .steps
            .and_then(|steps| TRAINING_MS.checked_div(steps))
            .unwrap_or(0);
        let step_ms = even.clamp(*STEP_MS.start(), *STEP_MS.end());
        let mut rank_args: Vec<String> = [
            ["--socket", &self.socket()],
            ["--job", JOB],
            ["--attempt", attempt],
            ["--rank", &rank.to_string()],
            ["--world", &RANKS.to_string()],
            ["--state-file", &file(state)],
            ["--out", &file(self.rank_out(rank))],
            ["--waits", &file(self.rank_waits(rank))],
            ["--step-ms", &step_ms.to_string()],
            ["--mark-every", &MARK_EVERY.to_string()],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
        if let Some(steps) = args.steps {
            rank_args.extend(["--steps".to_owned(), steps.to_string()]);
        }
        let (start, first) = match args.ranks_in {
            RanksIn::Rust => (self.lab.clone(), &["demo-rank"][..]),
            RanksIn::Python => {
                let path = args.python.clone();
                (
                    Start { path, first: None },
                    &["-m", "batchweave.demo_rank"][..],
                )
            }
        };
        let mut program = self.program(&format!("rank-{rank}"), start, first);
        program.args.extend(rank_args);
        program
    }
}

/// Returns the table of a source in the configuration of a producer.
fn source_table(source: &DemoSource) -> String {
    let paths: Vec<_> = source
        .files
        .iter()
        .map(|f| format!("{:?}", f.display().to_string()))
        .collect();
    format!(
        "[[sources]]\nname = {:?}\npaths = [{}]\nformat = \"jsonl\"\nweight = {}\n\
                 shuffle = {{ seed = {}, window = \"{}B\" }}\n\n",
        source.name,
        paths.join(", "),
        source.weight as f64 / 1e9,
        SHUFFLE.seed,
        SHUFFLE.window,
    )
}
