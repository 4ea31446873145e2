//! Shared by the producer's measurements: text, configuration, the tokenizer alone.

mod blobs;
pub(super) mod ingest;
pub(super) mod pack;
pub(super) mod produce;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use batchweave_console::CliError;
use batchweave_producer::config::{ProducerConfig, TokenizerKind};
use batchweave_producer::tokenizer::{Choice, Encoding, Tokenizer, load};
use clap::Args;

pub(super) use self::text::Text;
use super::cpu::{on_all_cores, process_seconds};
use crate::error::bench_error;

#[derive(Debug, Clone, Args)]
pub(crate) struct TextArgs {
    /// Amount of text to generate; none of it repeats
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    mib: u64,
    /// Measurements of each side, alternating; the report has medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
}

/// Returns the configuration of a producer of this text with cl100k_base, on all cores.
fn config(text: &Text) -> ProducerConfig {
    let mut config = ProducerConfig::default();
    config.store.url = "memory://none".into();
    config.producer.name = "bench".into();
    config.stream.producers = vec!["bench".to_owned()];
    let files = text.files.iter();
    config.source.paths = files.map(|path| path.display().to_string()).collect();
    config.tokenizer.kind = TokenizerKind::Embedded;
    config.tokenizer.name = Encoding::Cl100k;
    config
}

/// Loads a new tokenizer: one with a warm cache would be measured otherwise.
fn tokenizer() -> Result<Arc<dyn Tokenizer>, CliError> {
    load(&Choice::Embedded(Encoding::Cl100k)).map_err(bench_error)
}

/// One measurement of the tokenizer alone.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    /// Seconds of wall time.
    wall: f64,
    /// CPU seconds of this process.
    cpu: f64,
    tokens: u64,
}

/// Measures the baseline: a new tokenizer alone, document by document on all cores, from memory.
fn alone(documents: &[String]) -> Result<Measured, CliError> {
    let tokenizer = tokenizer()?;
    let (next, tokens) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (began, cpu) = (Instant::now(), process_seconds("self")?);
    let work = || {
        while let Some(text) = documents.get(next.fetch_add(1, Ordering::Relaxed)) {
            let encoded = tokenizer.encode(text).map_err(bench_error)?;
            tokens.fetch_add(encoded.len() + 1, Ordering::Relaxed);
        }
        Ok::<(), CliError>(())
    };
    on_all_cores(work)?;
    Ok(Measured {
        wall: began.elapsed().as_secs_f64(),
        cpu: process_seconds("self")? - cpu,
        tokens: tokens.into_inner() as u64,
    })
}

fn mb(rate: f64) -> String {
    format!("{:.1} MB/s", rate / 1e6)
}
