//! Helpers shared by the cross-crate tests.
#![forbid(unsafe_code)]

pub mod tiny_disk;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the path of a program of this workspace, built with the same profile as this test.
///
/// # Panics
/// When it is missing: build the workspace first, as `make test` does.
pub fn program(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    let path = here.ancestors().nth(2).unwrap_or(Path::new(".")).join(name);
    assert!(
        path.is_file(),
        "{} is missing: cargo build --release --workspace",
        path.display()
    );
    path
}

/// Returns the root of the checkout.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the seed of a random test: `BATCHWEAVE_SEED`, or one from the process id and the time.
pub fn seed() -> u64 {
    let given = std::env::var("BATCHWEAVE_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |d| d.as_nanos() as u64 % 1_000_000_007) ^ u64::from(std::process::id())
    });
    eprintln!("seed {seed} (set BATCHWEAVE_SEED to repeat)");
    seed
}

/// A child process that is killed when dropped.
#[derive(Debug)]
pub struct Process(pub Child);

impl Process {
    /// Starts a program of this workspace, with its standard error in `log`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(name: &str, args: &[&str], env: &[(String, String)], log: &Path) -> Self {
        let open = || std::fs::File::options().create(true).append(true).open(log);
        let Ok(log) = open() else {
            panic!("cannot write {}", log.display())
        };
        let mut command = Command::new(program(name));
        command.args(args).envs(env.iter().cloned());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        match command.spawn() {
            Ok(child) => Self(child),
            Err(e) => panic!("cannot start {name}: {e}"),
        }
    }

    /// Sends a signal by name (TERM, STOP, CONT, KILL).
    pub fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status();
    }

    /// Waits up to `within` and returns the exit code, or `None` for a signal.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn wait(&mut self, within: Duration) -> Option<i32> {
        let deadline = Instant::now() + within;
        loop {
            if let Ok(Some(status)) = self.0.try_wait() {
                return status.code();
            }
            assert!(
                Instant::now() < deadline,
                "{:?} did not end within {within:?}",
                self.0
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `done` returns true.
///
/// # Panics
/// When it does not within a minute.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !done() {
        assert!(
            Instant::now() < deadline,
            "still not after a minute: {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
