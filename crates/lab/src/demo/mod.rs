//! `batchweave demo`: the whole system on real text, with real processes, real kills, and a proof at the
//! end.

mod aftermath;
mod checker;
pub(crate) mod corpus;
mod kept;
mod mixture;
mod order;
pub(crate) mod processes;
pub(crate) mod rank;
mod run;
pub(crate) mod s3_server;
mod said;
mod scenario;
pub(crate) mod scrape;
mod setup;
mod shape;
mod share;
mod summary;

use std::path::{Path, PathBuf};

use batchweave_store::Location;

pub(crate) use run::run;

/// The store of the demo's stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum DemoStore {
    /// An embedded S3 server, in memory.
    #[default]
    S3,
    /// A folder of its own on the local disk.
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
            other => {
                let url = batchweave_store::root_url(other);
                match Location::parse(&url) {
                    Ok(location)
                        if location.is_remote() || matches!(location, Location::Folder(_)) =>
                    {
                        Ok(Self::Url(url.into_owned()))
                    }
                    _ => Err(format!(
                        "{other:?} is neither s3, file nor a URL as s3://bucket/prefix, gs://bucket/prefix, \
                         az://container/prefix or file:///dir, nor a folder as ./dir"
                    )),
                }
            }
        }
    }
}

/// The language of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RanksIn {
    /// The Rust client; needs nothing else.
    Rust,
    /// The Python package; needs it and numpy installed.
    Python,
}

/// Runs the whole system on text from this machine: producers, store, consumer daemon, four training ranks,
/// kills, and a proof at the end that every rank received every token once.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "--store selects the stream's store: s3 (an embedded S3 server, the default), file (a folder of its
own), or the URL of an empty root.

Examples:
  batchweave demo
  batchweave demo --keep
  batchweave demo --store file --ranks-in python
  batchweave demo --input ~/corpus --seed 7 --json | tail -n 1 | jq .mismatches"
)]
pub(crate) struct DemoArgs {
    /// The value of the global option --store.
    #[arg(skip)]
    pub(crate) store: DemoStore,
    /// Language of the ranks
    #[arg(long, value_name = "LANGUAGE", default_value = "rust")]
    pub(crate) ranks_in: RanksIn,
    /// Own documents: a text file, a folder of them, or JSONL with the field "text"
    #[arg(long, value_name = "PATH")]
    pub(crate) input: Option<PathBuf>,
    /// Stop the ranks after this many steps; by default they read to the end of the stream
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: Option<u64>,
    /// Seed of the kills; drawn and printed if not given
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Number of kills of each kind of process
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) kills: u32,
    /// Python to run the ranks with
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// Keep the demo's folder (stream, configuration, logs, the ranks' output) and print how to look at it; the
    /// stream is then a folder too, unless --store says otherwise
    #[arg(long)]
    pub(crate) keep: bool,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) timeout: u64,
}

/// The errors of a demo.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// Wrong arguments or input.
    #[error("{0}")]
    Usage(String),
    /// A file operation of the demo failed.
    #[error("cannot {verb} {path}: {why}")]
    Io {
        /// The operation that failed.
        verb: &'static str,
        /// The path of the file or folder.
        path: String,
        /// The operating system's message.
        why: String,
    },
    /// A rank failed to read.
    #[error(transparent)]
    Rank(#[from] batchweave_client::ClientError),
    /// A process ended unexpectedly, or something took too long.
    #[error("{what}\n{log}")]
    Process {
        /// The process, and what happened.
        what: String,
        /// The last lines of its log.
        log: String,
    },
    /// The store failed at the end of the run.
    #[error("cannot inspect the store after the run: {0}")]
    Store(String),
    /// The ledgers do not prove the run.
    #[error("`batchweave verify --job {job}` does not prove the run: {why}")]
    Unproved {
        /// Name of the job.
        job: &'static str,
        /// The first contradiction, or why there is no proof.
        why: String,
    },
    /// The ranks' files differ from the documents.
    #[error("the ranks' tokens differ from the documents in {mismatches} places: {first}")]
    Mismatch {
        /// Number of differences found.
        mismatches: u64,
        /// Description of the first one.
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
