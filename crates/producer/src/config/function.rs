//! `[transform]`: the function of the user that documents pass, its checks, and what it gets.

use std::time::Duration;

use batchweave_daemon::config::{ByteSize, Period, Problem};
use serde::{Deserialize, Serialize};

use super::{DocumentKind, ProducerConfig};
use crate::packing::ArraySpec;
use crate::sources::TextField;

/// The table `[transform]`: the function and its processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TransformConfig {
    /// The function, as `package.module:function`; empty for none.
    pub function: String,
    /// The Python that runs it.
    pub python: String,
    /// A folder of modules, before the others.
    pub path: String,
    /// Columns of Parquet files, or fields of a tar's samples, that the function gets; empty: those that the other keys
    /// name.
    pub fields: Vec<String>,
    /// Most processes; 0: one per tokenizing thread.
    pub workers: usize,
    /// Most time for one document.
    pub timeout: Period,
    /// Most memory of one process.
    pub memory: ByteSize,
}

impl Default for TransformConfig {
    fn default() -> Self {
        Self {
            function: String::new(),
            python: "python3".into(),
            path: String::new(),
            fields: Vec::new(),
            workers: 0,
            timeout: Period(Duration::from_mins(1)),
            memory: ByteSize::mib(4096),
        }
    }
}

impl ProducerConfig {
    /// Returns the columns that the function gets of a row, or the fields of a tar's sample.
    pub(crate) fn function_fields(&self, shards: bool) -> Vec<String> {
        if !self.transform.fields.is_empty() {
            return self.transform.fields.clone();
        }
        let chat = &self.chat;
        let mut fields = match self.documents() {
            DocumentKind::Sample => Vec::new(),
            DocumentKind::Conversation | DocumentKind::Pair if shards => vec!["json".to_owned()],
            DocumentKind::Conversation => vec![chat.messages.clone()],
            DocumentKind::Pair => vec![chat.chosen.clone(), chat.rejected.clone()],
            DocumentKind::Text | DocumentKind::Ids if shards => {
                vec![TextField::new(&self.source.field).member.to_owned()]
            }
            DocumentKind::Text | DocumentKind::Ids => vec![self.source.column.clone()],
        };
        fields.extend(sources(&self.packing.arrays));
        if !shards {
            let mask = Some(self.source.mask.clone()).filter(|name| !name.is_empty());
            fields.extend(mask);
            fields.extend(sources(&self.packing.extra));
        }
        fields
    }

    /// Returns the most worker processes.
    pub(crate) fn function_workers(&self) -> usize {
        match self.transform.workers {
            0 => self.tokenizer_threads(),
            workers => workers,
        }
    }

    /// Adds the contradictions in `[transform]`.
    pub(super) fn check_function(&self, problems: &mut Vec<Problem>) {
        let table = &self.transform;
        let mut wrong = |key: &str, bad: bool, message: &str| {
            if bad {
                problems.push(Problem::new(format!("transform.{key}"), message));
            }
        };
        if table.function.is_empty() {
            let default = TransformConfig::default();
            let without = "is for transform.function only; set that, or remove this key";
            wrong("python", table.python != default.python, without);
            wrong("path", table.path != default.path, without);
            wrong("fields", table.fields != default.fields, without);
            wrong("workers", table.workers != default.workers, without);
            wrong("timeout", table.timeout != default.timeout, without);
            wrong("memory", table.memory != default.memory, without);
            return;
        }
        let named = table.function.split_once(':');
        wrong(
            "function",
            !named.is_some_and(|(module, function)| is_dotted(module) && is_dotted(function)),
            "must name a module and a function in it, as \"package.module:function\"",
        );
        wrong("python", table.python.is_empty(), "must not be empty");
        wrong("workers", table.workers > 1024, "must be at most 1024");
        wrong("timeout", table.timeout.0.is_zero(), "must not be 0");
        wrong(
            "memory",
            table.memory < ByteSize::mib(64),
            "must be at least 64MiB, as Python needs some of it",
        );
        let mut sources = self.sources.iter();
        wrong(
            "function",
            self.source.format.is_binary() || sources.any(|s| s.format.is_binary()),
            "takes documents of JSONL, text, Parquet, Arrow, CSV and tars, not of .npy or Megatron's files",
        );
    }
}

/// Returns whether `name` is one of Python's names, or several with dots between them.
fn is_dotted(name: &str) -> bool {
    let word = |part: &str| {
        let mut chars = part.chars();
        chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
            && chars.all(|c| c.is_alphanumeric() || c == '_')
    };
    name.split('.').all(word)
}

fn sources(specs: &[ArraySpec]) -> Vec<String> {
    specs.iter().map(|spec| spec.source().to_owned()).collect()
}
