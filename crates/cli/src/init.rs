//! `batchweave init`: creates a stream, after checking that the store can hold one.

use std::io::Read;
use std::path::{Path, PathBuf};

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::{Style, fields};
use batchweave_console::stream;
use batchweave_core::ids::{Hash, ProducerName, StreamId};
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};
use batchweave_daemon::{Exit, timestamp};
use batchweave_log::Creation;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  batchweave init --store file:///data/stream --slices 8 --seq-len 2048 --rows-per-slice 8 \\
      --tokenizer my-bpe --fingerprint \"$(sha256sum tokenizer.json | cut -c1-64)\"
  batchweave init --store s3://bucket/new --like stream.json
  aws s3 cp s3://bucket/old/stream.json - | batchweave init --like - --store s3://bucket/new

The fingerprint of a tokenizer.json file is its SHA-256, as sha256sum prints it. A producer compares
it with its own tokenizer's and refuses to write to a stream with another one. With stream.create =
true (the default) a producer creates the stream by itself.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// Take the parameters of another stream, from its stream.json (- is standard input)
    #[arg(long, value_name = "FILE", conflicts_with_all = PARAMETERS)]
    like: Option<PathBuf>,
    /// Slices per batch: a multiple of every data-parallel size that will read the stream
    #[arg(long, value_name = "N", required_unless_present = "like")]
    slices: Option<u32>,
    /// Tokens that a row advances by (it stores one more)
    #[arg(long, value_name = "N", required_unless_present = "like")]
    seq_len: Option<u32>,
    /// Rows in a slice
    #[arg(long, value_name = "N", required_unless_present = "like")]
    rows_per_slice: Option<u32>,
    /// How batches get their steps: as they arrive, or from the named producers in turn
    #[arg(long, value_name = "ORDER", default_value = "arrival", value_parser = order())]
    order: StreamOrder,
    /// The producers whose last finish ends the stream; with lanes: in turn. None: any producer may write,
    /// and only a seal ends the stream
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    producers: Vec<ProducerName>,
    /// Name of the tokenizer, for display
    #[arg(long, value_name = "NAME", required_unless_present = "like")]
    tokenizer: Option<String>,
    /// SHA-256 of everything that determines the tokens; for a tokenizer.json: of that file
    #[arg(long, value_name = "HEX", required_unless_present = "like")]
    fingerprint: Option<Hash>,
}

const PARAMETERS: [&str; 7] = [
    "slices",
    "seq_len",
    "rows_per_slice",
    "order",
    "producers",
    "tokenizer",
    "fingerprint",
];

/// Parses an order as clap shows it in the help.
fn order() -> impl TypedValueParser<Value = StreamOrder> {
    PossibleValuesParser::new(["arrival", "lanes"]).map(|name| match name.as_str() {
        "lanes" => StreamOrder::Lanes,
        _ => StreamOrder::Arrival,
    })
}

#[derive(Debug, Serialize)]
struct InitReport {
    root: String,
    created: bool,
    stream: StreamConfig,
}

pub(crate) async fn run(args: &InitArgs, context: &Context) -> Result<Exit, CliError> {
    let wanted = args.stream()?;
    let store = context.store(true).await?;
    batchweave_store::probe(store.as_ref(), rand::random(), 0).await?;
    let (created, stream) = match batchweave_log::create(&store, &wanted).await? {
        Creation::Created(stream) => (true, stream),
        Creation::Existed(stream) => (false, stream),
    };
    let report = InitReport {
        root: store.root().to_owned(),
        created,
        stream,
    };
    context.done(&report, render)
}

impl InitArgs {
    /// Returns the validated parameters as a stream with a new id.
    fn stream(&self) -> Result<StreamConfig, CliError> {
        let mut stream = match &self.like {
            Some(path) => like(path)?,
            None => self.parameters(),
        };
        stream.stream_id = StreamId::from_random(rand::random());
        stream.created = timestamp::now();
        stream.check().map_err(CliError::Usage)?;
        Ok(stream)
    }

    /// Clap ensures that all of them are present.
    fn parameters(&self) -> StreamConfig {
        StreamConfig {
            format: 1,
            stream_id: StreamId([0; 16]),
            slices: self.slices.unwrap_or_default(),
            order: self.order,
            producers: self.producers.clone(),
            tokenizer: TokenizerId {
                name: self.tokenizer.clone().unwrap_or_default(),
                fingerprint: self.fingerprint.unwrap_or(Hash([0; 32])),
            },
            seq_len: self.seq_len.unwrap_or_default(),
            rows_per_slice: self.rows_per_slice.unwrap_or_default(),
            created: String::new(),
            form: None,
            parent: None,
        }
    }
}

fn like(path: &Path) -> Result<StreamConfig, CliError> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(path).map(|all| bytes = all)
    };
    let name = path.display();
    read.map_err(|e| CliError::Input(format!("--like {name}: cannot be read: {e}")))?;
    StreamConfig::from_json(&bytes, &format!("--like {name}"))
        .map_err(|e| CliError::Input(format!("{e}; give the stream.json of a stream")))
}

fn render(report: &InitReport, style: Style) -> String {
    let head = if report.created {
        "stream created"
    } else {
        "stream was there, with the same parameters"
    };
    let rows = fields(&stream::rows(&report.root, &report.stream));
    format!("{}\n{rows}", style.green(head))
}
