//! `batchweave-producer --survey`: the files below a path, found, recognised and opened as the producer does it, by
//! format, each with some documents. `batchweave quickstart` chooses the configuration from it.
//!
//! `groups` sorts the files by format, `paths` names those of a group for `source.paths`.

mod groups;
mod paths;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use batchweave_daemon::survey::{FileGroup, Survey, Unread};
use batchweave_daemon::{Exit, run_to_exit};
use serde_json::Value;

use self::groups::{FoundGroup, groups, unread};
use self::paths::Root;
use crate::config::{ProducerConfig, SourceConfig};
use crate::sources::{InputFile, Preview, ReadOptions, SourceError};
use crate::startup::{input_finder, read_options};
use crate::worker::{Worker, WorkerError};

/// Most files of a group that are read, most documents of each and of all, and most bytes of their JSON.
const FILES: usize = 16;
const DOCUMENTS_PER_FILE: usize = 32;
const DOCUMENTS: usize = 128;
const BYTES: usize = 8 << 20;

/// Prints the survey of the path that `words` begin with.
pub(crate) fn main(name: &str, words: Vec<OsString>) -> Exit {
    run_to_exit(name, async {
        let words: Vec<String> = (words.into_iter())
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let [path, outputs, left_out @ ..] = &words[..] else {
            eprintln!("{name}: --survey needs a path and a folder");
            return Exit::Config;
        };
        match survey(path, Path::new(outputs), left_out).await {
            Ok(survey) => {
                println!("{}", serde_json::to_string(&survey).unwrap_or_default());
                Exit::Ok
            }
            Err(why) => {
                eprintln!("{why}");
                Exit::BadInput
            }
        }
    })
}

/// The reason why the files cannot be surveyed.
#[derive(Debug, thiserror::Error)]
enum SurveyError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// Returns the survey of the files at `path` without those at or below `left_out`; the stream's files will lie in `outputs`.
async fn survey(path: &str, outputs: &Path, left_out: &[String]) -> Result<Survey, SurveyError> {
    let config = config_of(path);
    let found = match input_finder(&config).find(BTreeSet::new()).await {
        Err(SourceError::NoMatch { .. }) => return Ok(Survey::default()),
        found => found?,
    };
    let left_out: Vec<PathBuf> = left_out.iter().map(PathBuf::from).collect();
    let absolute = |name: &str| std::path::absolute(name).unwrap_or_else(|_| name.into());
    let is_out = |file: &InputFile| {
        let own = absolute(&file.pin.name);
        left_out.iter().any(|out| own.starts_with(out))
    };
    let names = found.left_out.entries().map(|(number, first, why)| Unread {
        files: number as u64,
        first: shorter(first),
        why: why.to_owned(),
    });
    let names = names.collect();
    let (out, files): (Vec<_>, Vec<_>) = found.files.into_iter().partition(is_out);
    let root = Root::new(path, outputs, out);
    let options = read_options(&config, None);
    let work = move || {
        let all = files.len();
        let (unread, files) = unread(files);
        let groups = groups(files).into_iter();
        let groups = groups.map(|group| {
            let paths = root.paths(&group, group.files.len() == all);
            sampled(group, paths, &options)
        });
        (groups.collect(), unread)
    };
    let (groups, unread) = Worker::start("survey", work)?.join().await?;
    Ok(Survey {
        groups,
        unread,
        left_out: names,
    })
}

/// Returns the name of a file without the dot for the working folder.
fn shorter(name: &str) -> String {
    name.strip_prefix("./").unwrap_or(name).to_owned()
}

/// Returns a configuration with this input alone.
fn config_of(path: &str) -> ProducerConfig {
    ProducerConfig {
        source: SourceConfig {
            paths: vec![path.to_owned()],
            ..SourceConfig::default()
        },
        ..ProducerConfig::default()
    }
}

/// Reads the first documents of a group.
fn sampled(group: FoundGroup, paths: Vec<String>, options: &ReadOptions) -> FileGroup {
    let (mut documents, mut bytes): (Vec<Value>, usize) = (Vec::new(), 0);
    let (mut consumed, mut fault) = (0, None);
    for file in group.files.iter().take(FILES) {
        let left = DOCUMENTS.saturating_sub(documents.len());
        if left == 0 || bytes >= BYTES {
            break;
        }
        let preview = Preview::read(file, options, left.min(DOCUMENTS_PER_FILE));
        consumed += preview.consumed;
        fault = fault.or(preview.fault);
        bytes += preview.documents.iter().map(size).sum::<usize>();
        documents.extend(preview.documents);
    }
    let stored: u64 = group.files.iter().map(|file| file.pin.size).sum();
    let share = stored as f64 / consumed.clamp(1, stored.max(1)) as f64;
    let largest = group.files.iter().map(|file| file.pin.size).max();
    FileGroup {
        format: group.format.key(),
        words: group.format.words().to_owned(),
        prose: group.prose,
        files: group.files.len() as u64,
        bytes: stored,
        largest: largest.unwrap_or_default(),
        first: group
            .files
            .first()
            .map_or(String::new(), |file| shorter(&file.pin.name)),
        endings: group.endings.into_iter().collect(),
        paths,
        estimated: documents.len() as f64 * share,
        documents,
        fault,
    }
}

/// Returns about the number of bytes of a value as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| name.len() + size(value))
            .sum(),
        _ => 8,
    }
}

#[cfg(test)]
mod tests;
