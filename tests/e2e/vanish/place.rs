//! The setting of the rounds: a store with a stream that has ended, a consumer daemon, the connections
//! between them, and checks of what the daemon still holds after its ranks have ended.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use batchweave_client::{Client, ConnectOptions};
use batchweave_testkit::free_port;
use batchweave_tests::{Process, checkout, eventually, program};

use super::rank::hash_of;
use super::wires::{self, Traffic};
use crate::scene::MINUTE;

pub(crate) const SLICES: u32 = 4;
pub(crate) const JOB: &str = "vanish";
const SEQ_LEN: u64 = 512;
const SEGMENT_MIB: u64 = 1;
const ARENA_MIB: u64 = 4;
const URL: &str = "s3://batchweave/stream";

pub(crate) struct Place {
    folder: tempfile::TempDir,
    store_at: SocketAddr,
    admin_at: SocketAddr,
    through: SocketAddr,
    pub(crate) store: Process,
    pub(crate) daemon: Process,
    pub(crate) socket: Traffic,
    pub(crate) wire: Traffic,
    /// A Python with numpy, for ranks.
    pub(crate) python: Option<PathBuf>,
    /// The hash of each slice in an undisturbed run.
    pub(crate) hashes: BTreeMap<(u64, u32), String>,
}

impl Place {
    /// Creates a stream of at least `steps`.
    pub(crate) fn new(steps: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store_at, admin_at) = (free_port(), free_port());
        let store = start_store(folder.path(), store_at);
        produce(folder.path(), store_at, steps);
        let (wire, through) = wires::before(store_at);
        let daemon = start_daemon(folder.path(), through, admin_at);
        let path = folder.path().join("ranks.sock");
        let socket = wires::between_ranks_and(folder.path().join("daemon.sock"), &path);
        let mut place = Self {
            folder,
            store_at,
            admin_at,
            through,
            store,
            daemon,
            socket,
            wire,
            python: python(),
            hashes: BTreeMap::new(),
        };
        place.read_undisturbed(steps);
        place.is_clean("before the first round");
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn restart_daemon(&mut self, after: Duration) {
        self.daemon.0.kill().unwrap();
        self.daemon.0.wait().unwrap();
        sleep(after);
        self.daemon = start_daemon(self.folder.path(), self.through, self.admin_at);
    }

    pub(crate) fn restart_store(&mut self, after: Duration) {
        self.store.0.kill().unwrap();
        self.store.0.wait().unwrap();
        sleep(after);
        self.store = start_store(self.folder.path(), self.store_at);
    }

    fn read_undisturbed(&mut self, steps: u64) {
        let mut reader = Client::connect(ConnectOptions::new(self.path("ranks.sock"))).unwrap();
        for _ in 0..steps {
            let batch = reader
                .next(MINUTE)
                .unwrap()
                .expect("the stream is long enough");
            for slice in batch.slices() {
                let hash = hash_of(slice);
                self.hashes.insert((batch.step(), slice.index()), hash);
            }
        }
        reader.close(MINUTE).unwrap();
    }

    /// Returns the step and slice of a hash, or none for torn bytes.
    pub(crate) fn whose(&self, hash: &str) -> Option<(u64, u32)> {
        let mut known = self.hashes.iter();
        known.find(|(_, of)| *of == hash).map(|(place, _)| *place)
    }

    /// Checks that nothing of a round is left once its ranks have ended.
    pub(crate) fn is_clean(&self, round: &str) {
        eventually(&format!("{round}: no session, no frame in use"), || {
            let metrics = self.metrics();
            let zero = |name: &str| metrics.lines().any(|line| line == format!("{name} 0"));
            zero("batchweave_consumer_sessions")
                && zero("batchweave_consumer_arena_bytes{part=\"held\"}")
                && zero("batchweave_consumer_arena_bytes{part=\"used\"}")
        });
        eventually(&format!("{round}: no connection of a rank"), || {
            self.socket.open() == 0 && self.connections() == 0
        });
        let files = open_files(self.daemon.0.id());
        let count = |what: &str| files.iter().filter(|file| file.contains(what)).count() as u64;
        assert!(
            count("memfd:") <= ARENA_MIB / SEGMENT_MIB,
            "{round}: {files:?}"
        );
        assert_eq!(count("pidfd"), 0, "{round}: {files:?}");
        // Connections to the store are kept for a while after use, more after a restart.
        eventually(&format!("{round}: few files are open"), || {
            open_files(self.daemon.0.id()).len() < 64
        });
    }

    /// Returns the number of accepted connections of the daemon's socket.
    fn connections(&self) -> usize {
        let text = fs::read_to_string("/proc/net/unix").unwrap();
        let path = self.path("daemon.sock").display().to_string();
        let own = text.lines().filter(|line| line.ends_with(&path));
        // Column 6 is the state: 01 listens, 03 is connected.
        own.filter(|line| line.split_ascii_whitespace().nth(5) == Some("03"))
            .count()
    }

    fn metrics(&self) -> String {
        let get = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.admin_at)?;
            stream.write_all(
                b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            )?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        get().unwrap_or_default()
    }

    /// Stops daemon and store as a service manager would; the log then proves the steps delivered
    /// to the ranks.
    pub(crate) fn stop(&mut self) {
        self.daemon.signal("TERM");
        assert_eq!(self.daemon.wait(MINUTE), Some(0), "{}", self.log_text());
        let output = Command::new(program("batchweave"))
            .args(["verify", "--job", JOB, "--json", "--store", URL])
            .args(["--endpoint", &format!("http://{}", self.store_at)])
            .envs(keys())
            .output()
            .unwrap();
        let proof = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{proof}{errors}");
        let proof: serde_json::Value = serde_json::from_str(&proof).unwrap();
        assert_eq!(proof["verdict"], "proved", "{proof}");
    }

    /// Returns the last lines of the daemon's log.
    pub(crate) fn log_text(&self) -> String {
        let text = fs::read_to_string(self.path("daemon.log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    pub(crate) fn python_told(&self) -> String {
        match &self.python {
            Some(path) => format!("one rank in Python ({})", path.display()),
            None => "no rank in Python: no Python with numpy here".to_owned(),
        }
    }
}

/// Returns the checkout's Python environment, or the system's Python.
fn python() -> Option<PathBuf> {
    let own = checkout().join(".venv/bin/python");
    [own, "python3".into()].into_iter().find(|path| {
        let mut import = Command::new(path);
        import
            .args(["-c", "import numpy"])
            .stderr(std::process::Stdio::null());
        import.status().is_ok_and(|status| status.success())
    })
}

fn keys() -> Vec<(String, String)> {
    let options = batchweave_dev_s3::Options::default();
    vec![
        ("AWS_ACCESS_KEY_ID".to_owned(), options.access_key),
        ("AWS_SECRET_ACCESS_KEY".to_owned(), options.secret_key),
        ("AWS_REGION".to_owned(), "us-east-1".to_owned()),
    ]
}

fn start_store(folder: &Path, at: SocketAddr) -> Process {
    let (listen, dir) = (at.to_string(), folder.join("objects").display().to_string());
    let args = ["dev-s3", "--json", "--listen", &listen, "--dir", &dir];
    let process = Process::start("batchweave", &args, &[], &folder.join("store.log"));
    eventually("the store answers", || TcpStream::connect(at).is_ok());
    process
}

/// Writes a corpus and packs it.
fn produce(folder: &Path, store: SocketAddr, steps: u64) {
    let mut text = String::new();
    // Each document is 1,023 bytes and an end: two rows. There are some more than needed.
    for line in 0..(steps + 8) * u64::from(SLICES) / 2 {
        let words = (0..128)
            .map(|word| format!("{:07}", line * 128 + word))
            .collect::<Vec<_>>()
            .join(" ");
        writeln!(text, "{}", serde_json::json!({ "text": words })).unwrap();
    }
    fs::write(folder.join("corpus.jsonl"), text).unwrap();
    let config = format!(
        "[store]\nurl = {URL:?}\nendpoint = \"http://{store}\"\n[stream]\nslices = {SLICES}\n\
         rows_per_slice = 1\nseq_len = {SEQ_LEN}\nproducers = [\"p0\"]\n[producer]\nname = \"p0\"\n\
         [source]\npaths = [{:?}]\n[tokenizer]\nkind = \"bytes\"\n[packing]\nobject_bytes = \"64KiB\"\n\
         [admin]\nlisten = \"off\"\n",
        folder.join("corpus.jsonl").display().to_string(),
    );
    let path = folder.join("producer.toml");
    fs::write(&path, config).unwrap();
    let args = ["--config", &path.display().to_string()];
    let log = folder.join("producer.log");
    let mut producer = Process::start("batchweave-producer", &args, &keys(), &log);
    let ended = producer.wait(5 * MINUTE);
    assert_eq!(ended, Some(0), "{}", fs::read_to_string(log).unwrap());
}

fn start_daemon(folder: &Path, store: SocketAddr, admin: SocketAddr) -> Process {
    let config = format!(
        "[store]\nurl = {URL:?}\nendpoint = \"http://{store}\"\n[job]\nname = {JOB:?}\nopen = true\n\
         progress_steps = 16\n[arena]\nbytes = \"{ARENA_MIB}MiB\"\nsegment_bytes = \"{SEGMENT_MIB}MiB\"\n\
         grow_after = \"1s\"\n[socket]\npath = {:?}\n[prefetch]\nbytes = \"512KiB\"\nsteps = 8\n\
         read_bytes = \"64KiB\"\n[follow]\nstarved = \"10ms\"\nidle = \"100ms\"\n\
         [admin]\nlisten = \"{admin}\"\n",
        folder.join("daemon.sock").display().to_string(),
    );
    let path = folder.join("daemon.toml");
    fs::write(&path, config).unwrap();
    let args = ["--config", &path.display().to_string()];
    let log = folder.join("daemon.log");
    Process::start("batchweave-consumer", &args, &keys(), &log)
}

/// Returns the open files of a process.
fn open_files(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|path| path.display().to_string())
        .collect()
}
