//! The input of `--check`: the files of each path, and the first document of each file as the producer would read it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use batchweave_daemon::check::Findings;
use futures::StreamExt;
use tokio::runtime::Handle;

use super::super::forms;
use super::super::inputs::{file_root, input_finder};
use super::super::reading::read_options;
use super::function;
use super::readable::{Readable, counted, document, excerpt};
use crate::config::{OnBadDocument, ProducerConfig, SourceConfig};
use crate::pipeline::named_files::NamedFiles;
use crate::sources::{
    DocumentError, FileReader, FileRoot, InputFile, InputList, Inputs, Place, ReadOptions,
    SourceError, Unit, shown,
};
use crate::transform::DocumentTransform;
use crate::worker::{Worker, WorkerError};

/// Most files of a path whose first document is read.
const FILES_MAX: usize = 64;
/// Most units of a file that are read for its first document, since blank and skipped ones come before it.
const UNITS_MAX: usize = 1000;

/// Lists every path and reads its first documents. Returns the list that a start would make; `None` when it fails.
pub(super) async fn check(
    config: &ProducerConfig,
    transform: Option<&Arc<DocumentTransform>>,
    findings: &mut Findings,
) -> Option<InputList> {
    let root = match file_root(config, &input_finder(config)).await {
        Ok(root) => root,
        Err(why) => {
            findings.fault("source.root", why);
            return None;
        }
    };
    let mut input = CheckedInput {
        root,
        transform,
        known: BTreeSet::new(),
        list: InputList::default(),
        trial: None,
        complete: true,
    };
    for (source, own) in config.all_sources().iter().zip(config.by_source()) {
        for path in &own.source.paths {
            input.add(&own, source.pin_name(), path, findings).await;
        }
    }
    let function = !config.transform.function.is_empty();
    if let (Some(transform), Some(trial), true) = (transform, input.trial, function) {
        check_function(trial, transform, findings).await;
    }
    input.complete.then_some(input.list)
}

/// The input of the paths that were checked so far.
struct CheckedInput<'a> {
    root: Option<FileRoot>,
    transform: Option<&'a Arc<DocumentTransform>>,
    /// Names of the files, each of which is read once.
    known: BTreeSet<String>,
    list: InputList,
    /// The files of the first path and the settings of its source, for the trial of the function.
    trial: Option<(Vec<InputFile>, ProducerConfig)>,
    /// Whether all paths could be listed.
    complete: bool,
}

impl CheckedInput<'_> {
    /// Lists a path of the source that `config` has alone, and reads the first documents of its files.
    async fn add(
        &mut self,
        config: &ProducerConfig,
        source: Option<&str>,
        path: &str,
        findings: &mut Findings,
    ) {
        let found = match listed(&with_path(config, path)).await {
            Ok(found) => found,
            Err(why) => {
                findings.fault("source.paths", why);
                self.complete = false;
                return;
            }
        };
        for line in found.left_out.lines() {
            findings.opened("left out", line);
        }
        let counted = counted(config.source.format, &found.files);
        let all = found.files.len();
        let new = found.files.into_iter();
        let new: Vec<_> = new
            .filter(|file| self.known.insert(file.pin.name.clone()))
            .collect();
        let seen: Vec<InputFile> = new.iter().take(FILES_MAX).cloned().collect();
        (self.trial).get_or_insert_with(|| (seen.clone(), config.clone()));
        let transform = self.transform.cloned();
        match read_first(seen, config.clone(), self.root.clone(), transform).await {
            Ok(read) => read.report(path, (all, new.len()), &counted, findings),
            Err(why) => findings.fault(path, why),
        }
        self.list.files.extend(new.into_iter().map(|mut file| {
            file.pin.source = source.map(str::to_owned);
            file
        }));
    }
}

/// Returns the configuration of one source with one of its paths.
fn with_path(config: &ProducerConfig, path: &str) -> ProducerConfig {
    ProducerConfig {
        source: SourceConfig {
            paths: vec![path.to_owned()],
            ..config.source.clone()
        },
        sources: Vec::new(),
        ..config.clone()
    }
}

/// Returns the files of a configuration with one path, all of which have a reader.
async fn listed(config: &ProducerConfig) -> Result<InputList, SourceError> {
    let found = input_finder(config).find(BTreeSet::new()).await?;
    forms::check(config, &found)?;
    Ok(found)
}

async fn read_first(
    files: Vec<InputFile>,
    config: ProducerConfig,
    root: Option<FileRoot>,
    transform: Option<Arc<DocumentTransform>>,
) -> Result<FirstDocuments, WorkerError> {
    let work = move || first_documents(files, (&config, root), transform.as_deref());
    Worker::start("check", work)?.join().await
}

/// Lets the first documents of a path pass the user's function.
async fn check_function(
    (files, config): (Vec<InputFile>, ProducerConfig),
    transform: &Arc<DocumentTransform>,
    findings: &mut Findings,
) {
    let transform = Arc::clone(transform);
    let work = move || {
        let options = all_documents(&config, Some(&transform));
        function::compare(files, &options, (&config, &transform))
    };
    let compared = match Worker::start("check", work) {
        Ok(work) => work.join().await,
        Err(why) => Err(why),
    };
    match compared {
        Ok(Ok(text)) => findings.opened("function", text),
        Ok(Err(text)) => findings.fault("transform.function", text),
        Err(why) => findings.fault("transform.function", why),
    }
}

/// Returns the settings to read all documents.
pub(super) fn all_documents(
    config: &ProducerConfig,
    transform: Option<&DocumentTransform>,
) -> ReadOptions {
    read_options(config, transform.and_then(DocumentTransform::end_token))
}

/// The first documents of some files.
#[derive(Default)]
struct FirstDocuments {
    /// The first one, with the name of its file.
    first: Option<(String, Readable)>,
    /// Files that were read.
    files: usize,
    /// Files without any document.
    empty: Vec<String>,
    faults: Vec<String>,
}

impl FirstDocuments {
    /// Reports the first documents of a path with `all` files, of which no earlier path named `new`.
    fn report(
        self,
        path: &str,
        (all, new): (usize, usize),
        counted: &str,
        findings: &mut Findings,
    ) {
        for fault in &self.faults {
            findings.fault("source.paths", fault);
        }
        if self.first.is_none() && self.faults.is_empty() && new > 0 {
            let text = format!(
                "{path} has no document: its {} empty; write documents into it, or correct the path",
                if new == 1 {
                    "only file is"
                } else {
                    "files are"
                }
            );
            findings.fault("source.paths", text);
            return;
        }
        findings.opened("input", self.summary(path, (all, new), counted));
        if let Some(text) = self.first.and_then(|(_, first)| first.text) {
            findings.opened("document", format!("\"{}\"", excerpt(&text)));
        }
    }

    /// Returns the files of a path and their first document in one line.
    fn summary(&self, path: &str, (all, new): (usize, usize), counted: &str) -> String {
        let mut text = match all {
            0 => format!("{path}: no file yet; new ones are read when they have settled"),
            1 => format!("{path}: 1 file, {counted}"),
            all => format!("{path}: {all} files, {counted}"),
        };
        if all > new {
            let _ = write!(text, ", {} of them named before and read once", all - new);
        }
        if let Some((name, first)) = &self.first {
            let of = if all == 1 {
                "its first document".to_owned()
            } else {
                format!("the first document of {}", shown(name))
            };
            let found = match first.tokens {
                Some(n) => format!("has {n} tokens"),
                None => "can be read".to_owned(),
            };
            let _ = write!(text, "; {of} {found}{}", first.beyond_words());
        }
        if self.files > 1 {
            let _ = write!(text, "; the first of {} files can be read", self.files);
        }
        if let Some(name) = self.empty.first() {
            let _ = write!(
                text,
                "; {} without a document, for example {name}",
                self.empty.len()
            );
        }
        text
    }
}

/// Reads the first document of each of `files`.
fn first_documents(
    files: Vec<InputFile>,
    (config, root): (&ProducerConfig, Option<FileRoot>),
    transform: Option<&DocumentTransform>,
) -> FirstDocuments {
    let options = all_documents(config, transform);
    let mut found = FirstDocuments::default();
    let list = InputList::of(files);
    let inputs = Arc::new(Inputs::new(list.clone()));
    // The settings of one source still list all of them, and each has a format of its own.
    let alone = ProducerConfig {
        sources: Vec::new(),
        ..config.clone()
    };
    let named = NamedFiles::from_config(&alone, inputs, root);
    for (number, file) in (0..).zip(&list.files) {
        let name = file.pin.name.clone();
        match first_document(
            (&list, named.as_ref()),
            (number, file),
            &options,
            (config, transform),
        ) {
            Ok(Some(document)) => {
                found.files += 1;
                found.first.get_or_insert((name, document));
            }
            // One file of each of Megatron's pairs has the documents.
            Ok(None) if options.format.is_pairs() => {}
            Ok(None) => found.empty.push(name),
            Err(why) => {
                found.files += 1;
                found.faults.push(why);
            }
        }
    }
    found
}

/// Returns the first document of `file`; `None` when there is none in its first units.
fn first_document(
    (list, named): (&InputList, Option<&Arc<NamedFiles>>),
    (number, file): (u32, &InputFile),
    options: &ReadOptions,
    (config, transform): (&ProducerConfig, Option<&DocumentTransform>),
) -> Result<Option<Readable>, String> {
    let text = |why: SourceError| why.to_string();
    let format = options.format.for_file(&file.pin.name);
    let from = Place {
        file: number,
        ..Place::default()
    };
    let Some(mut reader) = FileReader::open_in(list, options, from).map_err(text)? else {
        return Ok(None);
    };
    let mut skipped = None;
    for _ in 0..UNITS_MAX {
        let Some(unit) = reader.next_unit().map_err(text)? else {
            break;
        };
        let unit = match named {
            Some(named) => with_files(named, unit).map_err(text)?,
            None => unit,
        };
        let number = unit.place.unit;
        let why = match document(unit, config, transform) {
            Ok(Some(document)) => return Ok(Some(document)),
            Ok(None) => continue,
            Err(reason) => DocumentError::new(&file.pin.name, format, number, reason),
        };
        if config.source.on_bad_document == OnBadDocument::Fail {
            return Err(why.to_string());
        }
        skipped.get_or_insert(why);
    }
    match skipped {
        Some(why) => Err(format!("{why} (and no good document after it)")),
        None => Ok(None),
    }
}

/// Returns the unit with the files that it names.
fn with_files(named: &Arc<NamedFiles>, unit: Unit) -> Result<Unit, SourceError> {
    let unreadable = |why| SourceError::Unreadable {
        file: "a file that a document names".to_owned(),
        why,
    };
    let runtime = Handle::try_current().map_err(|why| unreadable(std::io::Error::other(why)))?;
    let filled = runtime.block_on(async { named.fill(vec![unit]).next().await });
    filled.unwrap_or_else(|| Err(unreadable(std::io::ErrorKind::UnexpectedEof.into())))
}
