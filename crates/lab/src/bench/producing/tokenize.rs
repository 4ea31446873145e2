//! `bench tokenize`: reading, decoding and tokenizing as the producer does, compared with the tokenizer
//! alone on the same cores.

use std::sync::Arc;

use batchweave_core::order::Position;
use batchweave_producer::pipeline::read::{ChunkSize, ReadItem};
use batchweave_producer::pipeline::read_source::SourceReader;
use batchweave_producer::pipeline::tokenize::{
    ChunkResults, ChunkTokenizer, Tokenized, TokenizerPool,
};
use batchweave_producer::sources::{
    Format, Inputs, Portion, ReadContent, ReadOptions, SourcePlan, find_all,
};
use futures::FutureExt;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::super::cpu::median;
use super::{Measured, Text, TextArgs, Watch, alone, config, cores, mb, transform};
use crate::error::bench_error;
use batchweave_console::CliError;

#[derive(Debug, Serialize)]
pub(crate) struct TokenizeReport {
    encoding: &'static str,
    cores: usize,
    documents: usize,
    text_bytes: u64,
    tokens: u64,
    /// Rate of the tokenizer alone, from memory.
    limit_bytes_per_second: f64,
    /// Rate from files to tokens in order.
    bytes_per_second: f64,
    ratio_to_tokenizer: f64,
    /// CPU time of the tokenizer alone divided by that of reading, decoding and tokenizing.
    ratio_of_cpu: f64,
}

pub(crate) async fn measure(args: &TextArgs) -> Result<TokenizeReport, CliError> {
    let text = Text::new(args)?;
    let config = config(&text);
    let open = |_: String| async { Err(remote()) }.boxed();
    let inputs = find_all(&config.source.paths, &open)
        .await
        .map_err(bench_error)?;
    let inputs = Arc::new(Inputs::new(inputs));
    let (mut rounds, mut tokens) = (Vec::new(), 0);
    for _ in 0..args.rounds {
        let limit = alone(&text.documents)?;
        let work = ChunkTokenizer {
            transform: transform(&config).await?,
            inputs: Arc::clone(&inputs),
            sources: vec![(Format::Auto, config.source.field.clone())],
            metrics: None,
        };
        let reading = Arc::clone(&inputs);
        let ours = tokio::task::spawn_blocking(move || pipeline(reading, work))
            .await
            .map_err(bench_error)??;
        same_tokens(&ours, &limit)?;
        tokens = ours.tokens;
        rounds.push((limit, ours));
    }
    let bytes = text.bytes as f64;
    Ok(TokenizeReport {
        encoding: "cl100k_base",
        cores: cores(),
        documents: text.documents.len(),
        text_bytes: text.bytes,
        tokens,
        limit_bytes_per_second: median(&rounds, |(limit, _)| bytes / limit.wall),
        bytes_per_second: median(&rounds, |(_, ours)| bytes / ours.wall),
        ratio_to_tokenizer: median(&rounds, |(limit, ours)| limit.wall / ours.wall),
        ratio_of_cpu: median(&rounds, |(limit, ours)| limit.cpu / ours.cpu),
    })
}

fn same_tokens(ours: &Measured, alone: &Measured) -> Result<(), CliError> {
    if ours.tokens == alone.tokens {
        return Ok(());
    }
    let (ours, alone) = (ours.tokens, alone.tokens);
    Err(bench_error(format!(
        "{ours} tokens, and {alone} by the tokenizer alone"
    )))
}

/// Never used: all files are local.
fn remote() -> batchweave_store::StoreError {
    batchweave_store::StoreError {
        op: batchweave_store::Op::Open,
        location: String::new(),
        kind: batchweave_store::ErrorKind::Invalid,
        effect: batchweave_store::Effect::DidNot,
        detail: "the corpus is local".to_owned(),
    }
}

/// Returns a reader of all documents of the files.
fn reader(inputs: Arc<Inputs>, full: ChunkSize) -> SourceReader {
    let options = ReadOptions {
        format: Format::Auto,
        content: ReadContent::Documents,
        column: "text".to_owned(),
        arrays: Vec::new(),
        beside: Vec::new(),
        members: Vec::new(),
        max_document_bytes: 64 << 20,
        decompress_memory: 512 << 20,
        inbox: false,
        sparse: false,
        share: Portion::ALL,
    };
    SourceReader {
        inputs,
        plan: Arc::new(SourcePlan::of_files(options, 1)),
        source: 0,
        from: Position::default(),
        selection: None,
        new_files: None,
        full,
    }
}

fn pipeline(inputs: Arc<Inputs>, work: ChunkTokenizer) -> Result<Measured, CliError> {
    let threads = cores();
    let reading = reader(inputs, ChunkSize::of_single_source(threads, u64::MAX));
    let watch = Watch::start()?;
    let pool = TokenizerPool::start(threads, work).map_err(bench_error)?;
    let (send, receive) = std::sync::mpsc::sync_channel(2 * threads + 2);
    let counting = std::thread::spawn(move || count(&receive));
    reading
        .run(&CancellationToken::new(), |read| match read {
            ReadItem::Chunk(chunk) => pool
                .submit(chunk)
                .is_some_and(|result| send.send(result).is_ok()),
            ReadItem::Grown(_) | ReadItem::PassEnd { .. } => true,
        })
        .map_err(bench_error)?;
    drop(send);
    let tokens = counting
        .join()
        .map_err(|_| bench_error("a thread died"))??;
    watch.stop(tokens)
}

fn count(
    results: &std::sync::mpsc::Receiver<oneshot::Receiver<ChunkResults>>,
) -> Result<u64, CliError> {
    let mut tokens = 0;
    for result in results {
        for item in result
            .blocking_recv()
            .map_err(bench_error)?
            .map_err(bench_error)?
        {
            if let Tokenized::Bad { error, .. } = item {
                return Err(bench_error(error));
            }
            tokens += item.documents().map(|one| one.content.items()).sum::<u64>();
        }
    }
    Ok(tokens)
}

impl TokenizeReport {
    pub(crate) fn text(&self) -> String {
        format!(
            "{} documents, {:.1} MB, {} tokens of {}, {} cores\n\
             the tokenizer alone   {}\n\
             from files to tokens  {}, {:.2} of it ({:.2} by CPU time)\n",
            self.documents,
            self.text_bytes as f64 / 1e6,
            self.tokens,
            self.encoding,
            self.cores,
            mb(self.limit_bytes_per_second),
            mb(self.bytes_per_second),
            self.ratio_to_tokenizer,
            self.ratio_of_cpu,
        )
    }
}
