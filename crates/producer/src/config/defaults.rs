//! The default of every key; config/producer.toml lists the same, with reasons.

use std::collections::BTreeMap;
use std::time::Duration;

use batchweave_core::stream::StreamOrder;
use batchweave_daemon::config::{ByteSize, Listen, Period};

use super::{
    AdminConfig, BalancedConfig, ChatConfig, CommitConfig, FlowControlConfig, Identity, LastBatch,
    OnBadDocument, PackingConfig, PackingMode, RunLimit, ShutdownConfig, SourceConfig,
    SourceContent, StreamParameters, TokenizerConfig, TokenizerKind, UploadConfig, WhenNoJob,
};
use crate::sources::Format;
use crate::transform::chat::Learn;

impl Default for StreamParameters {
    fn default() -> Self {
        Self {
            create: true,
            slices: 8,
            rows_per_slice: 8,
            seq_len: 2048,
            order: StreamOrder::Arrival,
            producers: Vec::new(),
        }
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            name: String::new(),
            index: 0,
            of: 1,
            lanes: Vec::new(),
            takeover_after: Period(Duration::from_mins(2)),
            limit: RunLimit::None,
        }
    }
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            endpoint: String::new(),
            root: String::new(),
            format: Format::default(),
            content: SourceContent::Text,
            field: "text".into(),
            column: "text".into(),
            mask: String::new(),
            epochs: 1,
            follow: false,
            inbox: false,
            follow_every: Period(Duration::from_secs(5)),
            settled_age: Period(Duration::from_mins(1)),
            settled_marker: String::new(),
            on_bad_document: OnBadDocument::Fail,
            max_document_bytes: ByteSize::mib(64),
            decompress_memory: ByteSize::mib(512),
            memory: ByteSize::mib(4096),
            shuffle: None,
        }
    }
}

impl Default for TokenizerConfig {
    fn default() -> Self {
        Self {
            kind: TokenizerKind::Embedded,
            name: crate::tokenizer::Encoding::Gpt2,
            path: String::new(),
            pattern: String::new(),
            special_tokens: std::collections::BTreeMap::new(),
            end_token: String::new(),
            begin_token: None,
            vocab_size: 0,
            end_token_id: None,
            begin_token_id: None,
            threads: 0,
        }
    }
}

impl Default for PackingConfig {
    fn default() -> Self {
        Self {
            mode: PackingMode::Concat,
            look_ahead: 512,
            balanced: BalancedConfig::default(),
            shuffle_rows: None,
            fields: Vec::new(),
            arrays: Vec::new(),
            extra: Vec::new(),
            last_batch: LastBatch::Drop,
            pad_token: None,
            provenance: true,
            object_bytes: ByteSize::mib(16),
        }
    }
}

impl Default for ChatConfig {
    fn default() -> Self {
        Self {
            template: String::new(),
            messages: "messages".into(),
            tools: "tools".into(),
            prompt: "prompt".into(),
            chosen: "chosen".into(),
            rejected: "rejected".into(),
            role_key: "role".into(),
            content_key: "content".into(),
            roles: BTreeMap::new(),
            learn: Learn::All,
            loss_keys: Vec::new(),
            ignore: Vec::new(),
            date: String::new(),
            renderer: None,
        }
    }
}

impl Default for UploadConfig {
    fn default() -> Self {
        Self {
            concurrency: 4,
            memory: ByteSize::mib(256),
            give_up_after: Period(Duration::from_mins(5)),
        }
    }
}

impl Default for CommitConfig {
    fn default() -> Self {
        Self {
            linger: Period::millis(200),
            latency_target: Period::millis(0),
            max_batches: 128,
        }
    }
}

impl Default for FlowControlConfig {
    fn default() -> Self {
        Self {
            max_steps: 0,
            max_bytes: ByteSize(0),
            when_no_job: WhenNoJob::Run,
            no_job_steps: 0,
            lane_lead: 256,
        }
    }
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self {
            deadline: Period(Duration::from_secs(25)),
        }
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: Listen(None),
        }
    }
}
