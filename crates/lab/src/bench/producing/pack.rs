//! `bench pack`: tokens to slices in one thread, in each mode, compared with the least possible work:
//! writing each token once in its stored width.

use std::time::{Duration, Instant};

use batchweave_console::CliError;
use batchweave_producer::config::{PackingMode, ProducerConfig};
use batchweave_producer::packing::{
    Batches, Content, Document, PackedBatch, Point, Restart, Within,
};
use batchweave_producer::sources::Place;
use batchweave_producer::transform::DocumentTransform;
use serde::Serialize;

use super::{Text, TextArgs, config, tokenizer};
use crate::bench::cpu::median;
use crate::error::bench_error;

/// Documents per measured batch; copies are made between measurements.
const AT_ONCE: usize = 256;

#[derive(Debug, Serialize)]
pub(crate) struct PackReport {
    tokens: u64,
    documents: usize,
    seq_len: u32,
    /// Writing each token in 32 bits.
    limit_tokens_per_second: f64,
    modes: Vec<Packed>,
}

#[derive(Debug, Serialize)]
struct Packed {
    mode: &'static str,
    /// Rate of packing and encoding together.
    tokens_per_second: f64,
    /// Rate of packing alone.
    packing_tokens_per_second: f64,
    ratio_to_copy: f64,
    /// Share of padding among the stored tokens.
    waste: f64,
}

#[derive(Default)]
struct Round {
    packing: Duration,
    encoding: Duration,
    batches: u64,
    own: u64,
}

pub(crate) async fn measure(args: &TextArgs) -> Result<PackReport, CliError> {
    let args = args.clone();
    let measured = tokio::task::spawn_blocking(move || report(&args));
    measured.await.map_err(bench_error)?
}

fn report(args: &TextArgs) -> Result<PackReport, CliError> {
    let text = Text::new(args.mib)?;
    let documents = documents(&text)?;
    let tokens: u64 = documents.iter().map(|d| d.content.items()).sum();
    let limits: Vec<f64> = (0..args.rounds).map(|_| copy(&documents)).collect();
    let limit = tokens as f64 / median(&limits, |seconds| *seconds);
    let mut modes = Vec::new();
    for (mode, packing) in [
        ("concat", PackingMode::Concat),
        ("best_fit", PackingMode::BestFit),
    ] {
        let mut config = config(&text);
        config.packing.mode = packing;
        let transform = DocumentTransform::new(&config).map_err(bench_error)?;
        let rounds: Result<Vec<Round>, CliError> = (0..args.rounds)
            .map(|_| Round::measure(&transform, &documents))
            .collect();
        let rounds = rounds?;
        let per_second = |time: Duration| tokens as f64 / time.as_secs_f64();
        let rate = median(&rounds, |r| per_second(r.packing + r.encoding));
        modes.push(Packed {
            mode,
            tokens_per_second: rate,
            packing_tokens_per_second: median(&rounds, |r| per_second(r.packing)),
            ratio_to_copy: rate / limit,
            waste: rounds.last().map_or(0., |round| round.waste(&config)),
        });
    }
    Ok(PackReport {
        tokens,
        documents: documents.len(),
        seq_len: config(&text).stream.seq_len,
        limit_tokens_per_second: limit,
        modes,
    })
}

/// Tokenizes the text into one document per line of input.
fn documents(text: &Text) -> Result<Vec<Document>, CliError> {
    let encoder = tokenizer()?;
    let mut documents = Vec::new();
    for (unit, text) in (0..).zip(&text.documents) {
        let place = Place {
            unit,
            ..Place::default()
        };
        let content = Content::Tokens(encoder.encode(text).map_err(bench_error)?);
        documents.push(Document {
            pass: 0,
            place,
            within: Within::default(),
            content,
            columns: None,
            arrays: Vec::new(),
        });
    }
    Ok(documents)
}

/// Wall time in seconds.
fn copy(documents: &[Document]) -> f64 {
    let began = Instant::now();
    for document in documents {
        if let Content::Tokens(tokens) = &document.content {
            let bytes: Vec<[u8; 4]> = tokens.iter().map(|token| token.to_le_bytes()).collect();
            std::hint::black_box(bytes);
        }
    }
    began.elapsed().as_secs_f64()
}

impl Round {
    fn measure(transform: &DocumentTransform, documents: &[Document]) -> Result<Self, CliError> {
        let mut round = Self::default();
        let batches = Batches::from_start(transform.unit_shape(), transform.encoder.slices());
        let mut packer = transform.packer(Restart::default(), batches);
        for some in documents.chunks(AT_ONCE) {
            let some = some.to_vec();
            let began = Instant::now();
            let mut batches = Vec::new();
            for document in some {
                packer.push(document).map_err(bench_error)?;
                batches.extend(std::iter::from_fn(|| packer.pop()));
            }
            round.packing += began.elapsed();
            round.encode(transform, &batches)?;
        }
        let began = Instant::now();
        packer.end(Point::pass(1)).map_err(bench_error)?;
        let batches: Vec<PackedBatch> = std::iter::from_fn(|| packer.pop()).collect();
        round.packing += began.elapsed();
        round.encode(transform, &batches)?;
        Ok(round)
    }

    fn encode(
        &mut self,
        transform: &DocumentTransform,
        batches: &[PackedBatch],
    ) -> Result<(), CliError> {
        let began = Instant::now();
        let mut room = Vec::new();
        for batch in batches {
            for slice in 0..transform.encoder.slices() as usize {
                let made = transform.encoder.slice(batch, slice).map_err(bench_error)?;
                // Slice by slice, as objects are written.
                room.resize(made.payload_len() as usize, 0);
                made.write(&mut room).map_err(bench_error)?;
                std::hint::black_box(&room);
            }
            self.batches += 1;
            self.own += batch.own;
        }
        self.encoding += began.elapsed();
        Ok(())
    }

    /// Computed over full batches: every mode pads or drops the last one.
    fn waste(&self, config: &ProducerConfig) -> f64 {
        let stream = &config.stream;
        let rows = u64::from(stream.slices) * u64::from(stream.rows_per_slice);
        let stride = match config.packing.mode {
            PackingMode::Concat => stream.seq_len,
            _ => stream.seq_len + 1,
        };
        let stored = self.batches * rows * u64::from(stride);
        1. - self.own as f64 / stored.max(1) as f64
    }
}

impl PackReport {
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{} documents, {} tokens, rows of {}, one thread\n\
             writing each token once  {:.0} million tokens/s\n",
            self.documents,
            self.tokens,
            self.seq_len,
            self.limit_tokens_per_second / 1e6,
        );
        for mode in &self.modes {
            let line = format!(
                "{:<24} {:.0} million tokens/s ({:.0} before encoding), {:.2} % padding\n",
                mode.mode,
                mode.tokens_per_second / 1e6,
                mode.packing_tokens_per_second / 1e6,
                100. * mode.waste,
            );
            text.push_str(&line);
        }
        text
    }
}
