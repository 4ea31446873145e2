//! The configuration of `batchweave-consumer`. Units, defaults and reasons: config/consumer.toml.

use std::path::PathBuf;

use batchweave_arena::SOCKET_PATH_BYTES_MAX;
use batchweave_daemon::config::{
    ByteSize, Config, Listen, Period, Problem, StoreConfig, other_names,
};
use batchweave_daemon::telemetry::LogConfig;
use serde::{Deserialize, Serialize};

/// The configuration of the daemon, one field per table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsumerConfig {
    pub store: StoreConfig,
    pub job: JobTable,
    pub arena: ArenaTable,
    pub socket: SocketTable,
    pub prefetch: PrefetchTable,
    pub follow: FollowTable,
    pub reclaim: ReclaimTable,
    pub shutdown: ShutdownTable,
    pub admin: AdminTable,
    pub log: LogConfig,
}

mod arena;
mod job;
mod reclaim;

pub use arena::{ArenaTable, HugePages};
pub use job::{Checkpoints, JobTable};
pub use reclaim::ReclaimTable;

/// `[socket]`: the socket to which ranks connect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketTable {
    pub path: PathBuf,
    /// The mode of the socket's file, in octal.
    pub mode: String,
    /// Users that may connect besides the daemon's own.
    pub allow_uids: Vec<u32>,
    /// Most sessions at a time.
    pub max_sessions: usize,
}

/// `[prefetch]`: how far and with how many requests to read ahead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrefetchTable {
    /// Bytes read ahead of use; 0: derived from the arena.
    pub bytes: ByteSize,
    /// Steps read ahead of each rank.
    pub steps: u64,
    /// Most requests in flight.
    pub concurrency: usize,
    /// Largest range of one request.
    pub read_bytes: ByteSize,
}

/// `[follow]`: how often the log's head is polled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FollowTable {
    /// Interval of polls while a rank waits for a step.
    pub starved: Period,
    /// Interval of polls while enough steps are read ahead.
    pub idle: Period,
    /// Polls per hour that may be more frequent than `starved`.
    pub quick_polls: u32,
}

/// `[shutdown]`: stopping after SIGTERM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShutdownTable {
    /// Most time to store marks, progress and ledgers, for each of these.
    pub deadline: Period,
}

/// `[admin]`: the admin endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminTable {
    /// Address of /metrics, /healthz and /readyz.
    pub listen: Listen,
}

/// Bytes read ahead where neither the arena nor they are given.
const AUTOMATIC_MAX: u64 = 512 << 20;

impl Default for SocketTable {
    fn default() -> Self {
        Self {
            path: "/run/batchweave/consumer.sock".into(),
            mode: "0660".into(),
            allow_uids: Vec::new(),
            max_sessions: 64,
        }
    }
}

impl Default for PrefetchTable {
    fn default() -> Self {
        Self {
            bytes: ByteSize(0),
            steps: 64,
            concurrency: 32,
            read_bytes: ByteSize::mib(16),
        }
    }
}

impl Default for FollowTable {
    fn default() -> Self {
        Self {
            starved: Period::millis(50),
            quick_polls: 36_000,
            idle: Period::millis(2_000),
        }
    }
}

impl Default for ShutdownTable {
    fn default() -> Self {
        Self {
            deadline: Period::millis(10_000),
        }
    }
}

impl Default for AdminTable {
    fn default() -> Self {
        Self {
            listen: Listen(Some(([127, 0, 0, 1], 9465).into())),
        }
    }
}

impl SocketTable {
    /// Returns the mode as a number; `None` if it is invalid or excludes the owner.
    pub fn mode_bits(&self) -> Option<u32> {
        let bits = u32::from_str_radix(&self.mode, 8).ok()?;
        (bits <= 0o777 && bits & 0o600 == 0o600).then_some(bits)
    }
}

impl Config for ConsumerConfig {
    fn hint(key: &str, _: Option<&str>) -> Option<String> {
        let tables = [
            "producer",
            "stream",
            "source",
            "tokenizer",
            "packing",
            "chat",
            "upload",
            "commit",
            "ahead",
            "sources",
            "mixture",
            "split",
            "inbox",
            "transform",
        ];
        let table = key.split('.').next().unwrap_or(key);
        let text = "it belongs to the producer's configuration, and this is the consumer's; config/consumer.toml lists its keys";
        let producers = tables.contains(&table).then(|| text.to_owned());
        producers.or_else(|| other_names::of_consumer(key))
    }

    fn check(&self) -> Vec<Problem> {
        let mut problems = self.log.check();
        problems.extend(self.store.check());
        let mut problem = |key: &str, message: String| problems.push(Problem::new(key, message));
        self.job.check(&mut problem);
        self.arena.check(&mut problem);
        self.socket.check(&mut problem);
        self.reclaim.check(&mut problem);
        self.prefetch.check(&self.arena, &mut problem);
        if self.follow.starved.0.is_zero() || self.follow.starved > self.follow.idle {
            let (starved, idle) = (self.follow.starved, self.follow.idle);
            problem(
                "follow.starved",
                format!("{starved} must be above 0 and not above follow.idle ({idle})"),
            );
        }
        problems
    }
}

impl SocketTable {
    fn check(&self, problem: &mut impl FnMut(&str, String)) {
        let length = self.path.as_os_str().len();
        if !self.path.is_absolute() {
            problem(
                "socket.path",
                format!(
                    "{} is not an absolute path; write it from the root, as \"/run/batchweave/consumer.sock\"",
                    self.path.display()
                ),
            );
        }
        if length > SOCKET_PATH_BYTES_MAX {
            let message = format!(
                "is {length} bytes long; the system allows {SOCKET_PATH_BYTES_MAX}: choose a shorter folder, as /run/batchweave"
            );
            problem("socket.path", message);
        }
        if self.mode_bits().is_none() {
            let message = format!(
                "{:?} is not a mode: write octal digits with rw for the owner, for example \"0660\"",
                self.mode
            );
            problem("socket.mode", message);
        }
        if self.max_sessions == 0 || self.max_sessions > 4096 {
            problem(
                "socket.max_sessions",
                format!("{} is not in 1 to 4096", self.max_sessions),
            );
        }
    }
}

impl PrefetchTable {
    /// Returns the bytes read ahead in an arena of `arena_bytes`: at most half of an automatic one, which may
    /// be large.
    pub(crate) fn bytes_of(&self, arena: &ArenaTable, arena_bytes: u64) -> u64 {
        let half = arena_bytes / 2;
        match (self.bytes.bytes(), arena.bytes.bytes()) {
            (0, 0) => half.min(AUTOMATIC_MAX),
            (0, _) => half,
            (given, 0) => given.min(half),
            (given, _) => given,
        }
    }

    fn check(&self, arena: &ArenaTable, problem: &mut impl FnMut(&str, String)) {
        if self.bytes > arena.bytes && arena.bytes.bytes() > 0 {
            let message = format!("{} is more than arena.bytes ({})", self.bytes, arena.bytes);
            problem("prefetch.bytes", message);
        }
        if self.steps == 0 || self.steps > 1024 {
            problem(
                "prefetch.steps",
                format!("{} is not in 1 to 1024", self.steps),
            );
        }
        if self.concurrency == 0 || self.concurrency > 256 {
            problem(
                "prefetch.concurrency",
                format!("{} is not in 1 to 256", self.concurrency),
            );
        }
        if self.read_bytes.bytes() < 64 << 10 {
            problem(
                "prefetch.read_bytes",
                format!(
                    "{} is below 64KiB: requests would cost more than bytes",
                    self.read_bytes
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests;
