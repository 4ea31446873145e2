//! The producer's configuration: plain structs with their defaults; config/producer.toml explains
//! each key, `check` finds contradictions.

use std::path::PathBuf;

use batchweave_core::stream::StreamOrder;
use batchweave_daemon::config::{ByteSize, Listen, Period};
use batchweave_daemon::telemetry::LogConfig;
use serde::{Deserialize, Serialize};

use crate::packing::{ArraySpec, Extra};
use crate::sources::Format;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProducerConfig {
    /// Where the stream is stored.
    pub store: StoreConfig,
    /// What the stream is.
    pub stream: StreamParameters,
    /// Who this producer is.
    pub producer: Identity,
    /// What it reads.
    pub source: SourceConfig,
    /// How text becomes tokens.
    pub tokenizer: TokenizerConfig,
    /// How tokens become batches.
    pub packing: PackingConfig,
    /// How conversations become tokens.
    pub chat: ChatConfig,
    /// How batches reach the store.
    pub upload: UploadConfig,
    /// When batches become visible.
    pub commit: CommitConfig,
    /// How far it runs ahead.
    pub ahead: FlowControlConfig,
    /// How it stops.
    pub shutdown: ShutdownConfig,
    /// Metrics and health.
    pub admin: AdminConfig,
    /// Logs.
    pub log: LogConfig,
}

/// `[stream]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamParameters {
    /// Whether to create the stream when it is absent.
    pub create: bool,
    /// Slices per batch.
    pub slices: u32,
    /// Rows per slice.
    pub rows_per_slice: u32,
    /// Tokens that a row advances by.
    pub seq_len: u32,
    /// How steps are given.
    pub order: StreamOrder,
    /// The producers that end the stream when all have finished.
    pub producers: Vec<String>,
}

/// `[producer]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// Name in the stream.
    pub name: String,
    /// Which share of the input.
    pub index: u32,
    /// Of how many.
    pub of: u32,
}

/// What to do with a bad document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBadDocument {
    /// Stop with an error.
    #[default]
    Fail,
    /// Leave it out, count it and log its place.
    Skip,
}

/// `[source]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceConfig {
    /// Files, folders, patterns and s3:// prefixes.
    pub paths: Vec<String>,
    /// S3 endpoint of s3:// paths; empty: that of the store.
    pub endpoint: String,
    /// How files are cut into documents.
    pub format: Format,
    /// JSON field with the text.
    pub field: String,
    /// Parquet column with the text.
    pub column: String,
    /// Passes over the input; 0 is without end.
    pub epochs: u64,
    /// Whether to go on with files that appear later.
    pub follow: bool,
    /// How often to look for them.
    pub follow_every: Period,
    /// A file is taken once it was not written for so long.
    pub settled_age: Period,
    /// Or once there is a file of its name with this behind it.
    pub settled_marker: String,
    /// What to do with a bad document.
    pub on_bad_document: OnBadDocument,
    /// Longest document.
    pub max_document_bytes: ByteSize,
}

/// Kinds of tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerKind {
    /// An encoding that is part of the program.
    #[default]
    Embedded,
    /// A tokenizer.json file.
    File,
    /// Raw bytes.
    Bytes,
}

/// `[tokenizer]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenizerConfig {
    /// Which kind.
    pub kind: TokenizerKind,
    /// Which embedded encoding.
    pub name: crate::tokenizer::Encoding,
    /// The file of kind `file`.
    pub path: String,
    /// The end token of kind `file`.
    pub end_token: String,
    /// Tokenizing threads; 0 is one a core.
    pub threads: usize,
}

/// What becomes of the last, partial batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastBatch {
    /// Left out.
    #[default]
    Drop,
    /// Filled up.
    Pad,
}

/// How documents become rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackingMode {
    /// One endless sequence, cut into rows.
    #[default]
    Concat,
    /// Whole documents in rows, as they fit best.
    BestFit,
    /// Conversations by the model's template, packed as `best_fit` does.
    Chat,
    /// No tokens: samples of named arrays.
    Opaque,
}

/// `[packing]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PackingConfig {
    /// How documents become rows.
    pub mode: PackingMode,
    /// Of `best_fit`: pieces of documents that a row is chosen from.
    pub look_ahead: usize,
    /// More arrays beside the tokens.
    pub fields: Vec<Extra>,
    /// Of `opaque`: the arrays of a sample.
    pub arrays: Vec<ArraySpec>,
    /// What becomes of the last, partial batch.
    pub last_batch: LastBatch,
    /// Token to fill up with; none: the end token.
    pub pad_token: Option<u32>,
    /// Whether to store which documents batches were made from.
    pub provenance: bool,
    /// Batches are put into one object until it has this size.
    pub object_bytes: ByteSize,
}

/// `[chat]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatConfig {
    /// The file with the template.
    pub template: String,
    /// JSON field with the messages.
    pub messages: String,
    /// JSON field with the tools.
    pub tools: String,
    /// The program that renders in processes of its own ([`crate::transform::chat::serve`]); not configured, but
    /// set by the program itself. None renders in the caller's threads.
    #[serde(skip)]
    pub renderer: Option<PathBuf>,
}

/// `[upload]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UploadConfig {
    /// Objects in flight.
    pub concurrency: usize,
    /// Their bytes and those of the batches that they are made from.
    pub memory: ByteSize,
    /// How long one object is tried.
    pub give_up_after: Period,
}

/// `[commit]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommitConfig {
    /// How long a batch waits for others to share an object with.
    pub linger: Period,
    /// How long a batch may take from durable to visible; zero: as fast as the store allows.
    pub latency_target: Period,
    /// Most batches in one commit.
    pub max_batches: usize,
}

/// What to do while no open job paces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenNoJob {
    /// Go on.
    #[default]
    Run,
    /// Wait for one.
    Wait,
}

/// `[ahead]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowControlConfig {
    /// Steps ahead of the slowest job that paces; 0 is without bound.
    pub max_steps: u64,
    /// Bytes ahead of it; 0 is without bound.
    pub max_bytes: ByteSize,
    /// What to do while no open job paces.
    pub when_no_job: WhenNoJob,
    /// Steps above the watermark that are made without such a job.
    pub no_job_steps: u64,
    /// Batches of a lane that may wait for their turn.
    pub lane_lead: u64,
}

/// `[shutdown]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShutdownConfig {
    /// How long to finish what is in flight.
    pub deadline: Period,
}

/// `[admin]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminConfig {
    /// Where `/metrics`, `/healthz` and `/readyz` answer.
    pub listen: Listen,
}

/// Returns `text`, or `None` for an empty key.
pub(crate) fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

mod check;
mod defaults;
mod store;

pub use store::StoreConfig;
#[cfg(test)]
mod tests;
