//! The size of the stream in `--check`, estimated from some documents: whether the disk can hold it, and whether one
//! document fills many steps.

use std::sync::Arc;
use std::time::Instant;

use batchweave_core::order::{Blocks, FileShape};
use batchweave_daemon::check::Findings;
use batchweave_daemon::disk::free_space;
use batchweave_daemon::figures::{grouped, short};

use super::balance::{self, Sizes};
use super::documents::all_documents;
use super::readable::document;
use crate::config::{ProducerConfig, RunLimit};
use crate::sources::{FileReader, InputFile, InputList, Place, ReadOptions, shapes};
use crate::transform::DocumentTransform;
use crate::worker::Worker;

/// Most files of a source that are sampled, and most documents of each.
const FILES: usize = 4;
const DOCUMENTS: usize = 50;
/// The same, where their lengths decide the balance of steps.
const DOCUMENTS_OF_BALANCE: usize = 1000;
/// Steps that one document may fill without a warning.
const STEPS_OF_DOCUMENT: u64 = 4;
/// A document of more than one in this number of parts of a window of shuffled rows is too long for it.
const PARTS_OF_WINDOW: u64 = 20;

/// Sums over the sampled units of a source: lines, rows, files or samples, also those that give no document.
#[derive(Debug, Default, Clone, PartialEq)]
struct Sample {
    units: u64,
    /// Their bytes as they are read, uncompressed, with their cells.
    raw: u64,
    /// Tokens and bytes of arrays of their documents, as `Stored` counts them.
    tokens: u64,
    arrays: u64,
    /// File name and tokens of the longest document.
    longest: (String, u64),
    /// Their documents, where their lengths decide the balance of steps.
    sizes: Sizes,
}

/// The estimated content of a stream.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Estimate {
    tokens: f64,
    arrays: f64,
}

/// The size of a batch.
#[derive(Debug, Clone, Copy)]
struct BatchSize {
    tokens: u64,
    /// `None` where batches differ in size.
    stored_bytes: Option<u64>,
}

/// Reports the estimated size of the stream, of which this producer has committed a number of batches.
pub(super) async fn check(
    config: &ProducerConfig,
    transform: &Arc<DocumentTransform>,
    (list, committed): (&InputList, u64),
    findings: &mut Findings,
) {
    let batch = BatchSize {
        tokens: config.shape().tokens() as u64,
        stored_bytes: transform.encoder.batch_bytes(),
    };
    let mut whole = Some(Estimate::default());
    let mut sizes = Vec::new();
    for (number, own) in config.by_source().into_iter().enumerate() {
        let name = config.sources.get(number).map(|source| &source.name);
        let of = |file: &&InputFile| file.pin.source.as_ref() == name;
        let files: Vec<InputFile> = list.files.iter().filter(of).cloned().collect();
        let transform = Arc::clone(transform);
        let epochs = own.source.epochs;
        let Ok(work) = Worker::start("check", move || sample(&files, &own, &transform)) else {
            return;
        };
        let Ok(Some((sample, once))) = work.join().await else {
            return;
        };
        sizes.push(sample.sizes);
        let (name, tokens) = &sample.longest;
        if let Some(why) = long_document(config, name, *tokens, batch.tokens) {
            findings.opened("warning", why);
        }
        whole = whole.filter(|_| epochs > 0).map(|sum| Estimate {
            tokens: sum.tokens + once.tokens * epochs as f64,
            arrays: sum.arrays + once.arrays * epochs as f64,
        });
    }
    balance::report(config, transform, &sizes, findings);
    if let Some(per_token) = transform.encoder.bytes_per_token() {
        // Slices of bins have their tokens, and what each of these has beside it.
        whole = whole.map(|sum| Estimate {
            arrays: sum.arrays + sum.tokens * per_token as f64,
            ..sum
        });
    }
    if let Some(bytes) = remaining_bytes(config, whole, batch, committed) {
        report_growth(config, bytes, findings);
    }
}

/// Reports that the stream will grow by about this many bytes, where the free space of its folder is known.
fn report_growth(config: &ProducerConfig, bytes: u64, findings: &mut Findings) {
    let Some(free) = free_space(&config.store.url) else {
        return;
    };
    let (needed, folder) = (rounded(bytes), free.folder.display());
    let free_bytes = rounded(free.bytes);
    if bytes > free.bytes {
        findings.opened("warning", format!(
            "the stream needs about {needed} more, by an estimate from some documents, and {folder} has {free_bytes} free: give it \
             a larger disk, or bound it with ahead.max_bytes and let reclaim.enabled of the consumer delete what is trained"
        ));
    } else {
        findings.opened("size", format!("about {needed} more, by an estimate from some documents; {folder} has {free_bytes} free"));
    }
}

fn rounded(bytes: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let bytes = bytes as f64;
    let unit = units.into_iter().find(|(size, _)| bytes >= *size);
    unit.map_or(format!("{bytes} B"), |(size, unit)| {
        format!("{:.1} {unit}", bytes / size)
    })
}

/// Returns a warning of a document that fills many steps in a row, or much of a window of shuffled rows.
fn long_document(
    config: &ProducerConfig,
    name: &str,
    tokens: u64,
    batch_tokens: u64,
) -> Option<String> {
    if config.is_balanced() {
        // Its pieces are dealt over the batches of a window.
        return None;
    }
    let fills = if config.packing.shuffle_rows.is_some() {
        let window = config.window_batches().saturating_mul(batch_tokens);
        (tokens > window / PARTS_OF_WINDOW).then(|| {
            format!(
                "more than a twentieth of the window of shuffled rows, {} tokens; raise packing.shuffle_rows.tokens",
                short(window as f64)
            )
        })
    } else {
        (tokens > STEPS_OF_DOCUMENT * batch_tokens).then(|| {
            format!(
                "which fill {} steps in a row; set packing.shuffle_rows, or source.format where the file holds many documents",
                grouped(tokens / batch_tokens)
            )
        })
    }?;
    let tokens = short(tokens as f64);
    Some(format!(
        "one document of {name} has about {tokens} tokens, {fills}"
    ))
}

/// Returns the bytes that are still to be stored: of `whole`, or up to the limit.
fn remaining_bytes(
    config: &ProducerConfig,
    whole: Option<Estimate>,
    batch: BatchSize,
    committed: u64,
) -> Option<u64> {
    let of = u64::from(config.producer.of.max(1));
    let batch_tokens = batch.tokens as f64;
    let input = whole.map(|whole| (whole.tokens / batch_tokens, whole.arrays));
    let limit = match config.producer.limit {
        RunLimit::Batches(batches) => Some(batches as f64),
        RunLimit::Tokens(tokens) => Some(tokens as f64 / batch_tokens),
        RunLimit::None | RunLimit::Documents(_) => None,
    };
    let batches = match (input, limit) {
        (Some((input, _)), Some(limit)) => input.min(limit),
        (input, limit) => limit.or(input.map(|(batches, _)| batches))?,
    };
    let left = (batches - (committed * of) as f64).max(0.0);
    if let Some(bytes) = batch.stored_bytes {
        return Some((left * bytes as f64) as u64);
    }
    // Samples and arrays of documents differ in size.
    let (all, arrays) = input?;
    Some((arrays * left / all.max(1.0)) as u64)
}

/// Samples the units of a source, and estimates what one pass over it holds. `None` when nothing can be read.
fn sample(
    files: &[InputFile],
    config: &ProducerConfig,
    transform: &DocumentTransform,
) -> Option<(Sample, Estimate)> {
    let options = Arc::new(all_documents(config, Some(transform)));
    let chosen = chosen(files);
    let mut sample = Sample::default();
    let began = Instant::now();
    for file in &chosen {
        sample.add(file, &options, (config, transform));
    }
    sample.sizes.seconds = began.elapsed().as_secs_f64();
    if sample.units == 0 {
        return None;
    }
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    let shapes = runtime.block_on(shapes(chosen.clone(), &options)).ok()?;
    let size = |files: &[InputFile]| files.iter().map(|file| file.pin.size).sum::<u64>();
    let scale = size(files) as f64 / size(&chosen).max(1) as f64;
    let units: f64 = shapes
        .iter()
        .zip(&chosen)
        .map(|(shape, file)| sample.units_of(shape, file))
        .sum();
    let per = |sum: u64| sum as f64 / sample.units as f64;
    let estimate = Estimate {
        tokens: per(sample.tokens) * units * scale,
        arrays: per(sample.arrays) * units * scale,
    };
    Some((sample, estimate))
}

/// Returns the largest file and some from all over the list.
fn chosen(files: &[InputFile]) -> Vec<InputFile> {
    let step = files.len().div_ceil(FILES - 1).max(1);
    let largest = (0..files.len()).max_by_key(|n| files[*n].pin.size);
    let mut numbers: Vec<usize> = (0..files.len()).step_by(step).chain(largest).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|n| files[n].clone()).collect()
}

impl Sample {
    /// Adds the first documents of a file, as far as they can be read: faults are reported elsewhere.
    fn add(
        &mut self,
        file: &InputFile,
        options: &Arc<ReadOptions>,
        (config, transform): (&ProducerConfig, &DocumentTransform),
    ) {
        let list = InputList {
            files: vec![file.clone()],
            ..InputList::default()
        };
        let Ok(Some(mut reader)) = FileReader::open_in(&list, options, Place::default()) else {
            return;
        };
        let is_balanced = config.is_balanced();
        let most = if is_balanced {
            DOCUMENTS_OF_BALANCE
        } else {
            DOCUMENTS
        };
        for _ in 0..most {
            let Ok(Some(unit)) = reader.next_unit() else {
                return;
            };
            self.units += 1;
            self.raw += unit.bytes() as u64;
            let Ok(Some(made)) = document(unit, config, Some(transform)) else {
                continue;
            };
            self.tokens += made.stored.tokens;
            self.arrays += made.stored.arrays;
            if is_balanced {
                self.sizes.documents.extend(made.stored.documents);
            }
            let tokens = made.tokens.map_or(1, |tokens| tokens as u64 + 1);
            if tokens > self.longest.1 {
                self.longest = (file.pin.name.clone(), tokens);
            }
        }
    }

    /// Returns about how many units a file has.
    fn units_of(&self, shape: &FileShape, file: &InputFile) -> f64 {
        if let FileShape::RowGroups(groups) = shape {
            return groups.iter().map(|(rows, _)| *rows as f64).sum();
        }
        let bytes = Blocks::plan([(0, file.pin.size, shape.clone())]).bytes();
        bytes as f64 * self.units as f64 / self.raw.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_and_what_is_stored_lower_the_size() {
        let whole = Some(Estimate {
            tokens: 1000.0 * 100.0,
            arrays: 7e6,
        });
        let config = |limit| {
            let mut config = ProducerConfig::default();
            config.producer.limit = limit;
            config
        };
        let bytes = |config, whole, stored_bytes, committed| {
            let tokens = 100;
            let batch = BatchSize {
                tokens,
                stored_bytes,
            };
            remaining_bytes(config, whole, batch, committed)
        };
        let none = config(RunLimit::None);
        assert_eq!(bytes(&none, whole, Some(300), 0), Some(300_000));
        assert_eq!(bytes(&none, whole, Some(300), 400), Some(180_000));
        assert_eq!(bytes(&none, whole, None, 500), Some(3_500_000));
        assert_eq!(bytes(&none, None, Some(300), 0), None, "without end");
        let batches = config(RunLimit::Batches(10));
        assert_eq!(bytes(&batches, None, Some(300), 0), Some(3000));
        assert_eq!(bytes(&batches, whole, Some(300), 0), Some(3000));
        let tokens = config(RunLimit::Tokens(1 << 40));
        assert_eq!(bytes(&tokens, whole, Some(300), 0), Some(300_000));
    }
}
