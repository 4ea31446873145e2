//! The producer's configuration as plain structs; config/producer.toml explains each key. `defaults` holds the
//! defaults, `check` finds contradictions, `hints` knows the names of other programs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use batchweave_core::stream::StreamOrder;
use batchweave_daemon::config::{ByteSize, Listen, Period, StoreConfig};
use batchweave_daemon::telemetry::LogConfig;
use serde::{Deserialize, Serialize};

use crate::packing::{ArraySpec, Extra};
use crate::sources::Format;
use crate::transform::chat::Learn;

/// The content of the configuration file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProducerConfig {
    pub store: StoreConfig,
    pub stream: StreamParameters,
    pub producer: Identity,
    pub source: SourceConfig,
    /// Several sources in place of the one of `[source]`; empty without.
    pub sources: Vec<NamedSource>,
    pub mixture: MixtureConfig,
    /// Later shapes of the batches; empty without.
    pub stages: Vec<StageConfig>,
    pub inbox: InboxConfig,
    pub split: SplitConfig,
    pub tokenizer: TokenizerConfig,
    pub transform: TransformConfig,
    pub packing: PackingConfig,
    pub chat: ChatConfig,
    pub upload: UploadConfig,
    pub commit: CommitConfig,
    pub ahead: FlowControlConfig,
    pub shutdown: ShutdownConfig,
    pub admin: AdminConfig,
    pub log: LogConfig,
}

/// The table `[stream]`: the parameters of the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamParameters {
    /// Create the stream when it is absent.
    pub create: bool,
    pub slices: u32,
    pub rows_per_slice: u32,
    /// Number of tokens from the start of one row to the start of the next.
    pub seq_len: u32,
    /// The order in which batches get steps.
    pub order: StreamOrder,
    /// The producers that end the stream when all have finished.
    pub producers: Vec<String>,
}

/// The table `[producer]`: the name of this producer and its share of the input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    pub name: String,
    /// Index of its share of the input, from 0, of `of` shares.
    pub index: u32,
    pub of: u32,
    /// The lanes that this daemon runs, in place of one producer.
    pub lanes: Vec<String>,
    /// Time after which an awaited lane of another daemon is taken over; zero: never.
    pub takeover_after: Period,
    /// The end of the run, of all producers together.
    pub limit: RunLimit,
}

/// The reaction to a bad document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBadDocument {
    /// Stop with an error.
    #[default]
    Fail,
    /// Leave it out, count it and log its place.
    Skip,
}

/// The documents that the input holds, unless packing.mode says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceContent {
    #[default]
    Text,
    /// Token ids, ready made.
    Ids,
    /// Conversations by the chat template, with `packing.mode = "balanced"`.
    Conversations,
    /// Preference pairs by the chat template, with `packing.mode = "balanced"`.
    Pairs,
}

/// The table `[source]`: the input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceConfig {
    /// Files, folders, patterns and prefixes in stores.
    pub paths: Vec<String>,
    /// S3 endpoint of s3:// paths; empty: that of the store.
    pub endpoint: String,
    /// The folder, or the prefix in a store, that paths in documents start from; empty: the folder of the document's file.
    pub root: String,
    /// The way in which files are divided into documents.
    pub format: Format,
    /// The documents that files hold.
    pub content: SourceContent,
    /// JSON field with the text or the ids, or field of a tar's samples with the text.
    pub field: String,
    /// Parquet column with the text or the ids.
    pub column: String,
    /// Field or column with a mark for each id, 1 for those that are learned; empty without.
    pub mask: String,
    /// Number of passes over the input; 0 repeats it for ever.
    pub epochs: u64,
    /// Continue with files that appear later.
    pub follow: bool,
    /// The paths are inboxes: files of writers, which are followed.
    pub inbox: bool,
    /// Interval between polls for new files.
    pub follow_every: Period,
    /// A new file is read when it was last written at least this long ago,
    pub settled_age: Period,
    /// or, unless this is empty, when another file exists with its name and this suffix.
    pub settled_marker: String,
    pub on_bad_document: OnBadDocument,
    /// Size of the longest document that is read.
    pub max_document_bytes: ByteSize,
    /// Most memory that the window of one compressed file takes.
    pub decompress_memory: ByteSize,
    /// Most bytes of documents that wait to be shuffled, of all sources.
    pub memory: ByteSize,
    /// Without it, documents come in the order of the files; with it, this is a source of the name `source`.
    pub shuffle: Option<ShuffleConfig>,
}

impl SourceConfig {
    /// Returns whether files that appear later join the input.
    pub(crate) fn grows(&self) -> bool {
        self.follow || self.inbox
    }
}

/// The kinds of tokenizers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerKind {
    /// An encoding that is part of the program.
    #[default]
    Embedded,
    /// A tokenizer.json file of the Hugging Face format, a SentencePiece model, or a rank file of tiktoken.
    File,
    /// One token per byte of the text.
    Bytes,
    /// None: the documents are ids.
    None,
}

/// The table `[tokenizer]` of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenizerConfig {
    pub kind: TokenizerKind,
    /// The encoding of kind `embedded`.
    pub name: crate::tokenizer::Encoding,
    /// The file of kind `file`.
    pub path: String,
    /// The split pattern of a rank file of tiktoken.
    pub pattern: String,
    /// The special tokens of a rank file of tiktoken, with their ids.
    pub special_tokens: BTreeMap<String, u32>,
    /// The end token of kind `file`.
    pub end_token: String,
    /// The token that each document begins with; an empty text says that there is none.
    pub begin_token: Option<String>,
    /// The size of the vocabulary of kind `none`.
    pub vocab_size: u32,
    /// The end token of kind `none`.
    pub end_token_id: Option<u32>,
    /// The begin token of kind `none`.
    pub begin_token_id: Option<u32>,
    /// Number of tokenizing threads; 0 is one per core.
    pub threads: usize,
}

/// The treatment of the last, partial batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastBatch {
    #[default]
    Drop,
    Pad,
}

/// The way in which documents are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackingMode {
    /// All documents as one endless sequence, divided into rows.
    #[default]
    Concat,
    /// Whole documents in the rows that they fill best.
    BestFit,
    /// Conversations by the model's template, packed as by `best_fit`.
    Chat,
    /// A preferred and a rejected answer in two neighbouring rows, by the model's template.
    Pairs,
    /// Documents in bins of equal cost.
    Balanced,
    /// Samples of named arrays instead of tokens.
    Opaque,
}

/// The table `[packing]` of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PackingConfig {
    pub mode: PackingMode,
    /// Number of pieces of documents that `best_fit` chooses from.
    pub look_ahead: usize,
    pub balanced: BalancedConfig,
    /// The rows of several batches are shuffled together.
    pub shuffle_rows: Option<ShuffleRowsConfig>,
    /// Optional arrays that slices hold beside the tokens.
    pub fields: Vec<Extra>,
    /// The arrays of a sample of `opaque`.
    pub arrays: Vec<ArraySpec>,
    /// Fields or columns with a number for each document, which its tokens carry.
    pub extra: Vec<ArraySpec>,
    pub last_batch: LastBatch,
    /// The padding token; by default the end token.
    pub pad_token: Option<u32>,
    /// Store which documents each batch was made from.
    pub provenance: bool,
    /// Batches are added to an object until it has this size.
    pub object_bytes: ByteSize,
}

impl PackingConfig {
    /// Returns the arrays that come beside tokens; none of samples.
    pub(crate) fn arrays_beside(&self) -> &[ArraySpec] {
        match self.mode {
            PackingMode::Opaque => &[],
            _ => &self.arrays,
        }
    }
}

/// The table `[chat]` of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatConfig {
    pub template: String,
    /// JSON field or Parquet column with the messages.
    pub messages: String,
    /// JSON field or Parquet column with the tools.
    pub tools: String,
    /// For pairs: field or column with the messages before both answers.
    pub prompt: String,
    /// For pairs: field or column with the preferred answer.
    pub chosen: String,
    /// For pairs: field or column with the rejected answer.
    pub rejected: String,
    /// Field of a message with its role.
    pub role_key: String,
    /// Field of a message with its text.
    pub content_key: String,
    /// The template's role for each role in the documents.
    pub roles: BTreeMap<String, String>,
    /// The messages that are learned.
    pub learn: Learn,
    /// More keys of a message that say by 1 or 0 whether it is learned.
    pub loss_keys: Vec<String>,
    /// Keys that say nothing about the loss, though their names do.
    pub ignore: Vec<String>,
    /// The date that the template's `strftime_now` writes, as 2026-11-27; empty for none.
    pub date: String,
    /// The program whose processes render conversations ([`crate::chat::serve`]); set by the daemon, not by the
    /// configuration. Without it, the calling threads render.
    #[serde(skip)]
    pub renderer: Option<PathBuf>,
}

/// The table `[upload]` of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UploadConfig {
    /// Most objects that are uploaded at the same time.
    pub concurrency: usize,
    /// Most bytes of these objects and of the batches that they are made from.
    pub memory: ByteSize,
    /// Time after which the upload of an object is no longer retried.
    pub give_up_after: Period,
}

/// The table `[commit]` of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommitConfig {
    /// Time for which a batch waits for others to share an object with.
    pub linger: Period,
    /// Target of the time from durable to visible; zero is as fast as the store allows.
    pub latency_target: Period,
    pub max_batches: usize,
}

/// The behaviour while there is no open job to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenNoJob {
    #[default]
    Run,
    /// Wait for a job.
    Wait,
}

/// The table `[ahead]`: limits on how far producers run ahead of the jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowControlConfig {
    /// Most steps ahead of the slowest job; 0 is unlimited.
    pub max_steps: u64,
    /// Most bytes ahead of the slowest job; 0 is unlimited.
    pub max_bytes: ByteSize,
    pub when_no_job: WhenNoJob,
    /// Most steps above the watermark while there is no job to wait for; 0: `max_steps`.
    pub no_job_steps: u64,
    /// Most batches of a lane that wait for their turn.
    pub lane_lead: u64,
}

/// The table `[shutdown]` of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShutdownConfig {
    /// Time to finish uploads and commits after a request to stop.
    pub deadline: Period,
}

/// The table `[admin]` of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminConfig {
    /// Address of `/metrics`, `/healthz` and `/readyz`.
    pub listen: Listen,
}

mod balanced;
mod check;
mod check_chat;
mod check_columns;
mod check_paths;
mod check_sources;
mod content;
mod defaults;
mod end;
mod function;
mod hints;
mod inbox;
mod lanes;
mod part;
mod rules;
mod setting;
mod several;
mod shards;
mod shuffle_rows;
mod stages;
mod table;

pub use balanced::{BalancedConfig, CostSetting, LongDocuments, NamedCost, OwnCost};
pub use content::DocumentKind;
pub use function::TransformConfig;
pub use inbox::{Delete, InboxConfig};
pub use part::{RunLimit, Selection, Side, SplitConfig};
pub use several::{MixtureConfig, NamedSource, ShuffleConfig};
pub use shuffle_rows::ShuffleRowsConfig;
pub use stages::{StageConfig, StagePackingConfig};
#[cfg(test)]
mod tests;
