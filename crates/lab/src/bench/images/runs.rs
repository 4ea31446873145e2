//! The real processes: a producer into a folder, a consumer daemon of it, and a trainer in Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use batchweave_console::CliError;
use batchweave_console::programs::{self, Name, Start};
use serde::Deserialize;

use super::{BATCH, MODULE, SIDE};
use crate::bench::cpu::process_seconds;
use crate::demo::processes::{Program, Running};
use crate::error::bench_error;

const POLL: Duration = Duration::from_millis(5);
/// Longest wait for the stream of a producer that starts.
const START_MAX: Duration = Duration::from_mins(1);
/// Longest run of a trainer.
const READ_MAX: Duration = Duration::from_hours(2);
/// Part of the run after which memory is noted first.
const QUARTER: f64 = 0.25;

/// A run of a producer alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ingest {
    /// Seconds from its start to its end.
    pub(super) seconds: f64,
    pub(super) cpu: f64,
    /// Bytes of memory after a quarter of that time, and at the end.
    pub(super) quarter_rss: u64,
    pub(super) end_rss: u64,
}

/// The time of a trainer's last batch, in seconds since 1970.
#[derive(Debug, Deserialize)]
struct Read {
    images: u32,
    ended: f64,
}

/// The programs, and the stream that the last one wrote.
pub(super) struct Runs {
    folder: PathBuf,
    python: PathBuf,
    images: u32,
    producer: Start,
    consumer: Start,
    /// Number of processes that were started.
    started: u32,
}

impl Runs {
    pub(super) fn new(folder: &Path, python: &Path, images: u32) -> Result<Self, CliError> {
        let find =
            |name| programs::find(name).ok_or_else(|| CliError::Usage(programs::missing(name)));
        Ok(Self {
            folder: folder.to_owned(),
            python: python.to_owned(),
            images,
            producer: find(Name::Producer)?,
            consumer: find(Name::Consumer)?,
            started: 0,
        })
    }

    /// Runs a producer of the shards to its end. The stream stays until [`Self::remove`].
    pub(super) async fn ingest(&mut self, shards: &Path) -> Result<Ingest, CliError> {
        let began = Instant::now();
        let mut producer = self.start_producer(shards)?;
        let pid = producer.pid().unwrap_or_default().to_string();
        let (mut memory, mut cpu) = (Vec::new(), 0.0);
        loop {
            match producer.ended() {
                Some(status) if status.success() => break,
                Some(_) => return Err(producer.failed("failed").into()),
                None => {}
            }
            if let Some(bytes) = rss(&pid) {
                memory.push((began.elapsed().as_secs_f64(), bytes));
            }
            // A process that has just ended has none.
            cpu = process_seconds(&pid).unwrap_or(cpu);
            tokio::time::sleep(POLL).await;
        }
        let seconds = began.elapsed().as_secs_f64();
        let at = |part: f64| {
            let before = memory.iter().take_while(|(at, _)| *at <= seconds * part);
            before.last().map_or(0, |(_, bytes)| *bytes)
        };
        Ok(Ingest {
            seconds,
            cpu,
            quarter_rss: at(QUARTER),
            end_rss: at(1.0),
        })
    }

    /// Returns the seconds from the start of a consumer daemon to the last batch of its trainer, of the stored stream.
    pub(super) async fn stored(&mut self) -> Result<f64, CliError> {
        let mut trainer = self.start_trainer().await?;
        let began = now()?;
        let mut consumer = self.start_consumer()?;
        let ended = self.read(&mut trainer, &mut consumer).await?;
        Ok(ended - began)
    }

    /// Returns the seconds from the start of a producer to the last batch of a trainer that reads its stream meanwhile.
    pub(super) async fn live(&mut self, shards: &Path) -> Result<f64, CliError> {
        let mut trainer = self.start_trainer().await?;
        let began = now()?;
        let deadline = Instant::now() + START_MAX;
        let mut producer = self.start_producer(shards)?;
        while !self.stream().join("stream.json").exists() {
            if producer.ended().is_some_and(|status| !status.success()) || Instant::now() > deadline
            {
                return Err(producer.failed("has made no stream").into());
            }
            tokio::time::sleep(POLL).await;
        }
        let mut consumer = self.start_consumer()?;
        let ended = self.read(&mut trainer, &mut consumer).await?;
        Ok(ended - began)
    }

    /// Removes the stream of the last producer.
    pub(super) fn remove(&self) -> Result<(), CliError> {
        Ok(fs::remove_dir_all(self.stream())?)
    }

    fn stream(&self) -> PathBuf {
        self.folder.join("stream")
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("s")
    }

    fn times(&self) -> PathBuf {
        self.folder.join("times.json")
    }

    fn start_producer(&mut self, shards: &Path) -> Result<Running, CliError> {
        fs::create_dir_all(self.stream())?;
        let config = format!(
            "{}producer.name = \"p0\"\nstream = {{ slices = 1, rows_per_slice = {BATCH}, seq_len = 1, producers = [\"p0\"] }}\n\
             tokenizer.kind = \"bytes\"\npacking.mode = \"opaque\"\npacking.last_batch = \"pad\"\npacking.arrays = [\n\
             {{ name = \"image\", from = \"jpg\", dtype = \"U8\", shape = [{SIDE}, {SIDE}, 3], image = \"crop\" }},\n\
             {{ name = \"cls\", dtype = \"I64\" }},\n]\nsource.paths = [{:?}]\n",
            self.common(),
            shards.join("*.tar").display().to_string(),
        );
        let producer = self.producer.clone();
        self.start(&producer, "producer", &config)
    }

    fn start_consumer(&mut self) -> Result<Running, CliError> {
        // Of an earlier daemon.
        let _ = fs::remove_file(self.socket());
        let config = format!(
            "{}job = {{ name = \"bench\", open = true }}\nsocket.path = {:?}\n\
             arena = {{ bytes = \"256MiB\", segment_bytes = \"32MiB\" }}\nfollow.starved = \"10ms\"\n",
            self.common(),
            self.socket().display().to_string(),
        );
        let consumer = self.consumer.clone();
        self.start(&consumer, "consumer", &config)
    }

    /// Returns the lines of both daemons' configurations.
    fn common(&self) -> String {
        let url = format!("file://{}", self.stream().display());
        format!("store.url = {url:?}\nadmin.listen = \"off\"\nlog.level = \"warn\"\n")
    }

    fn start(&mut self, program: &Start, name: &str, config: &str) -> Result<Running, CliError> {
        self.started += 1;
        let path = |end: &str| self.folder.join(format!("{name}-{}.{end}", self.started));
        fs::write(path("toml"), config)?;
        let args = ["--config".to_owned(), path("toml").display().to_string()];
        let first = program.first.map(str::to_owned).into_iter();
        let program = Program {
            path: program.path.clone(),
            args: first.chain(args).collect(),
            env: Vec::new(),
            log: path("log"),
            name: name.to_owned(),
        };
        Ok(program.start()?)
    }

    /// Starts a trainer, which waits for the daemon's socket, and returns when it does.
    async fn start_trainer(&mut self) -> Result<Running, CliError> {
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_file(self.times());
        self.started += 1;
        let words = [
            "-m".to_owned(),
            MODULE.to_owned(),
            "read".to_owned(),
            self.socket().display().to_string(),
            "--images".to_owned(),
            self.images.to_string(),
            "--out".to_owned(),
            self.times().display().to_string(),
        ];
        let trainer = Program {
            path: self.python.clone(),
            args: words.into(),
            env: Vec::new(),
            log: self.folder.join(format!("trainer-{}.log", self.started)),
            name: "trainer".to_owned(),
        };
        Ok(trainer.start_with_line().await?.0)
    }

    /// Waits for the trainer, and returns the time of its last batch.
    async fn read(&self, trainer: &mut Running, consumer: &mut Running) -> Result<f64, CliError> {
        let deadline = Instant::now() + READ_MAX;
        loop {
            match trainer.ended() {
                Some(status) if status.success() => break,
                Some(_) => return Err(trainer.failed("failed").into()),
                None if consumer.ended().is_some() => {
                    return Err(consumer.failed("has ended").into());
                }
                None if Instant::now() > deadline => {
                    return Err(trainer.failed("takes too long").into());
                }
                None => tokio::time::sleep(POLL).await,
            }
        }
        let read: Read = serde_json::from_slice(&fs::read(self.times())?).map_err(bench_error)?;
        if read.images != self.images {
            let (found, wanted) = (read.images, self.images);
            return Err(bench_error(format!(
                "the trainer got {found} images, not {wanted}"
            )));
        }
        Ok(read.ended)
    }
}

/// Returns the memory of a process in bytes.
fn rss(pid: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn now() -> Result<f64, CliError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(now.map_err(bench_error)?.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_read() {
        let own = rss(&std::process::id().to_string()).unwrap();
        assert!(own > 1 << 20, "{own}");
        assert_eq!(rss("no-process"), None);
    }
}
