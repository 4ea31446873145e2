//! `batchweave demo`: the whole system on real text, with real processes and real kills, and a
//! proof at the end.

mod aftermath;
mod checker;
pub(crate) mod corpus;
pub(crate) mod processes;
pub(crate) mod rank;
mod run;
pub(crate) mod s3_server;
mod scenario;
pub(crate) mod scrape;
mod setup;
mod summary;

use std::path::{Path, PathBuf};

pub(crate) use run::run;

/// Where the demo keeps its stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum DemoStore {
    /// A server of its own, in memory.
    #[default]
    S3,
    /// A local folder.
    File,
    /// An existing, empty root.
    Url(String),
}

impl std::str::FromStr for DemoStore {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "s3" => Ok(Self::S3),
            "file" => Ok(Self::File),
            url if url.starts_with("s3://") || url.starts_with("file:///") => {
                Ok(Self::Url(url.to_owned()))
            }
            other => Err(format!(
                "{other:?} is neither s3, file nor a URL as s3://bucket/prefix or file:///dir"
            )),
        }
    }
}

/// In which language the ranks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RanksIn {
    /// The Rust client; needs nothing else.
    Rust,
    /// The Python package; needs it and numpy installed.
    Python,
}

/// Shows the whole system on text from this machine: producers, store, consumer daemon, four
/// training ranks, kills on the way, and a proof at the end that every rank got every token once.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "The stream is kept in an embedded S3 server, or where --store says: s3 (the same), file (a
folder of its own), or an empty root as a URL.

Examples:
  batchweave demo
  batchweave demo --store file --ranks-in python
  batchweave demo --input ~/corpus --seed 7 --json | tail -n 1 | jq .mismatches"
)]
pub(crate) struct DemoArgs {
    /// From the global option --store.
    #[arg(skip)]
    pub(crate) store: DemoStore,
    /// In which language the ranks run
    #[arg(long, value_name = "LANGUAGE", default_value = "rust")]
    pub(crate) ranks_in: RanksIn,
    /// Own documents: a text file, a folder of them, or JSONL with the field "text"
    #[arg(long, value_name = "PATH")]
    pub(crate) input: Option<PathBuf>,
    /// Stop the ranks after so many steps; by default they read to the end of the stream
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u64>,
    /// Seed of the kills; drawn and printed if not given
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Kill each kind of process this often
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) kills: u32,
    /// Python to run the ranks with
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// Keep the demo's folder (stream, logs, what the ranks got)
    #[arg(long)]
    pub(crate) keep: bool,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) timeout: u64,
}

/// Why a demo did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// Wrong arguments or input.
    #[error("{0}")]
    Usage(String),
    /// A file of the demo's own.
    #[error("cannot {verb} {path}: {why}")]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: String,
        /// The system's words.
        why: String,
    },
    /// A rank could not read.
    #[error(transparent)]
    Rank(#[from] batchweave_client::ClientError),
    /// A process ended in a way that nobody asked for, or something took too long.
    #[error("{what}\n{log}")]
    Process {
        /// Which, and how.
        what: String,
        /// The end of its log.
        log: String,
    },
    /// The store, when what is left there was looked at.
    #[error("what the run has left in the store can't be judged: {0}")]
    Store(String),
    /// What the log and the ledgers say.
    #[error("`batchweave verify --job {job}` does not prove the run: {why}")]
    Unproved {
        /// Of which job.
        job: &'static str,
        /// The first contradiction.
        why: String,
    },
    /// The proof failed.
    #[error("the ranks did not get what the documents say ({mismatches} differences): {first}")]
    Mismatch {
        /// How many.
        mismatches: u64,
        /// The first.
        first: String,
    },
}

impl DemoError {
    fn io(verb: &'static str, path: &Path, why: &std::io::Error) -> Self {
        Self::Io {
            verb,
            path: path.display().to_string(),
            why: why.to_string(),
        }
    }
}
