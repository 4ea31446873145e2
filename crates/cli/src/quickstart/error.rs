//! The errors of `batchweave quickstart` other than data that do not fit.

use std::io;
use std::path::PathBuf;

use batchweave_console::CliError;

/// The reason why nothing is written, or nothing is run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuickstartError {
    /// The data are not files of this machine.
    #[error(
        "{} is in a store, and quickstart reads files of this machine: copy some files here, or write the URL into source.paths of config/run.toml", .0.display()
    )]
    NotLocal(PathBuf),
    /// There is nothing at the path of the data.
    #[error("{} does not exist: name the folder or the file with the data", .0.display())]
    NoData(PathBuf),
    /// The folder for the files does not exist.
    #[error("--into {}: the folder does not exist; create it first", .0.display())]
    NoFolder(PathBuf),
    /// The named tokenizer does not exist.
    #[error("--tokenizer {}: the file does not exist; name a model's tokenizer.json", .0.display())]
    NoTokenizer(PathBuf),
    /// Files of these names exist.
    #[error(
        "{files} {exist} already, and nothing was written: --force replaces {them}, and --into FOLDER writes elsewhere"
    )]
    Exists {
        files: String,
        exist: &'static str,
        them: &'static str,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {why}; free space, or name another folder with --into", path.display())]
    Write { path: PathBuf, why: io::Error },
    /// The root of the stream holds one.
    #[error(
        "{0} holds a stream already, and nothing was written: `batchweave run run.toml` continues it; for another one name a root with \
         --store URL, or delete this one with `batchweave delete {0} --yes --force`"
    )]
    HasStream(String),
    /// The ids have no end token.
    #[error(
        "the lists of ids in {0} do not all end with the same id, so that the end token is unknown: name the tokenizer that made them with \
         --tokenizer FILE"
    )]
    NoEnd(String),
    /// The data are in too many folders.
    #[error(
        "the data in {} lie in too many folders beside other files: put them into a folder of their own, or write run.toml elsewhere with \
         --into FOLDER", .0.display()
    )]
    TooManyPlaces(PathBuf),
    /// All data together make no step.
    #[error("the data make no step: reduce stream.slices, stream.rows_per_slice or stream.seq_len in {}", .0.display())]
    NoStep(PathBuf),
    /// The producer's program can't be started.
    #[error(
        "cannot start batchweave-producer: {0}; install it beside batchweave or in a folder of PATH (`make install` does)"
    )]
    NoProducer(io::Error),
    /// The producer's program is another version.
    #[error(
        "batchweave-producer answered in another form: {0}; install the version of this program"
    )]
    OtherProducer(serde_json::Error),
}

impl QuickstartError {
    /// Returns the error for files that exist.
    pub(super) fn exists(paths: &[PathBuf]) -> Self {
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let one = names.len() == 1;
        Self::Exists {
            files: in_words(&names),
            exist: if one { "exists" } else { "exist" },
            them: if one { "it" } else { "them" },
        }
    }
}

/// Returns names with commas and an `and`.
fn in_words(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

impl From<QuickstartError> for CliError {
    fn from(why: QuickstartError) -> Self {
        match why {
            QuickstartError::NotLocal(_)
            | QuickstartError::NoFolder(_)
            | QuickstartError::NoTokenizer(_) => Self::Usage(why.to_string()),
            QuickstartError::NoData(_)
            | QuickstartError::NoEnd(_)
            | QuickstartError::TooManyPlaces(_) => Self::Input(why.to_string()),
            QuickstartError::Exists { .. } | QuickstartError::HasStream(_) => {
                Self::Refused(why.to_string())
            }
            _ => Self::Failed(why.to_string()),
        }
    }
}
