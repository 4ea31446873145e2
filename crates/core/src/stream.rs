//! `stream.json`: the parameters of a stream, written once. Opening it with other parameters is one error
//! that lists every difference.

use serde::{Deserialize, Serialize};

use crate::error::FormatError;
use crate::ids::{Hash, ProducerName, Step, StreamId, Version};
use crate::json;
use crate::limits::{
    NAMED_PRODUCERS_MAX, NUMBER_MAX, REASON_BYTES_MAX, SLICES_MAX, STREAM_BYTES_MAX,
};

/// The order in which committed TGBs get their steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamOrder {
    /// In the order of the log.
    Arrival,
    /// The named producers take turns.
    Lanes,
}

/// The tokenizer that made the tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerId {
    /// A name for people.
    pub name: String,
    /// SHA-256 over everything that determines the tokens (vocabulary, merges, special tokens).
    pub fingerprint: Hash,
}

/// The form of a stream's slices, where they are not rows of one width or samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SliceForm {
    /// Bins of documents side by side, of any length and of equal cost.
    Balanced,
}

/// The stream that a fork continues, and the place where it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParentStream {
    /// The id of the parent.
    pub stream: StreamId,
    /// The parent's root when the fork was made, for people.
    pub root: String,
    /// The first step of the fork; the parent has those below it.
    pub step: Step,
    /// The first version of the parent behind which all steps below `step` are assigned; none where the parent began
    /// with that step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// The hash of the parent's record of that version; of its `stream.json` without one.
    pub record: Hash,
    /// The parent's view after that version.
    pub view: Hash,
    /// The hash of the state with which the fork begins, `fork.json`.
    pub state: Hash,
}

/// The content of `stream.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// Format of this object: 2 with `form` or `parent`, so that releases that do not know them refuse the stream, else 1.
    pub format: u32,
    /// Random id: a root that is removed and created again is another stream.
    pub stream_id: StreamId,
    pub slices: u32,
    /// The order of steps.
    pub order: StreamOrder,
    /// The producers whose last finish ends the stream (under `lanes`: the lanes, in turn). Empty: any name
    /// may produce, and only a seal ends the stream.
    pub producers: Vec<ProducerName>,
    pub tokenizer: TokenizerId,
    /// Tokens that a row advances by; a row stores one more. Most tokens of a bin.
    pub seq_len: u32,
    /// Rows or bins in a slice.
    pub rows_per_slice: u32,
    /// The form of slices, where they are not rows of one width or samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<SliceForm>,
    /// Of a fork: the stream that it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentStream>,
    /// The creation time, RFC 3339, for people.
    pub created: String,
}

/// The format of an object with a form of slices or a parent.
const FORMAT_WITH_FORM: u32 = 2;

impl StreamConfig {
    /// Returns the number of the object's format.
    pub fn format_of(form: Option<SliceForm>) -> u32 {
        form.map_or(1, |_| FORMAT_WITH_FORM)
    }

    /// Returns the format that the content asks for.
    pub fn own_format(&self) -> u32 {
        let parent = self.parent.as_ref().map_or(1, |_| FORMAT_WITH_FORM);
        Self::format_of(self.form).max(parent)
    }

    /// Returns the first step of the stream: 0, or that at which a fork begins.
    pub fn first_step(&self) -> Step {
        self.parent.as_ref().map_or(0, |parent| parent.step)
    }

    /// Returns the step at which a job begins that is to read from `asked` on; 0 is the first of the stream.
    pub fn job_start(&self, asked: Step) -> Step {
        if asked == 0 { self.first_step() } else { asked }
    }

    /// Returns the parent that has `step`, where this stream is a fork that begins later.
    pub fn parent_with(&self, step: Step) -> Option<&ParentStream> {
        self.parent.as_ref().filter(|parent| step < parent.step)
    }

    /// Returns whether slices are bins of equal cost.
    pub fn is_balanced(&self) -> bool {
        self.form == Some(SliceForm::Balanced)
    }

    /// Returns the name of a row of a slice, for people.
    pub fn row_name(&self) -> &'static str {
        if self.is_balanced() { "bin" } else { "row" }
    }

    /// Returns the tokens of a batch, or its samples.
    pub fn batch_items(&self) -> u64 {
        u64::from(self.slices) * u64::from(self.rows_per_slice) * u64::from(self.seq_len)
    }

    /// Returns the bytes of `stream.json`.
    pub fn to_json(&self) -> Vec<u8> {
        json::pretty(self)
    }

    /// Reads and checks `stream.json`. `key` is for messages.
    pub fn from_json(bytes: &[u8], key: &str) -> Result<Self, FormatError> {
        let config: Self =
            json::parse_up_to(bytes, key, STREAM_BYTES_MAX, FORMAT_WITH_FORM.into())?;
        config
            .check()
            .map_err(|reason| FormatError::rule(key, reason))?;
        Ok(config)
    }

    /// Checks the rules of the format page; the error is a sentence about the broken one.
    pub fn check(&self) -> Result<(), String> {
        if self.slices == 0 || self.slices > SLICES_MAX {
            return Err(format!(
                "slices must be 1 to {SLICES_MAX}, not {}",
                self.slices
            ));
        }
        if self.format != self.own_format() {
            return Err(format!(
                "format is {}, and must be 2 with a form or a parent, 1 without",
                self.format
            ));
        }
        if let Some(parent) = &self.parent {
            parent.check(self.stream_id)?;
        }
        if self.rows_per_slice == 0 || self.seq_len == 0 {
            return Err("rows_per_slice and seq_len must be at least 1".to_owned());
        }
        if self.producers.len() > NAMED_PRODUCERS_MAX {
            return Err(format!(
                "at most {NAMED_PRODUCERS_MAX} producers can be named"
            ));
        }
        if self.order == StreamOrder::Lanes && self.producers.is_empty() {
            return Err("order = lanes needs the lanes in producers".to_owned());
        }
        let mut names: Vec<_> = self.producers.iter().collect();
        names.sort();
        if let Some(twice) = names
            .windows(2)
            .find_map(|w| (w[0] == w[1]).then_some(w[0]))
        {
            return Err(format!("producer {twice} is named twice"));
        }
        Ok(())
    }

    /// Returns every difference in the parameters (ids and creation time apart), one line each: `slices:
    /// the stream has 8, this configuration 16`.
    pub fn differences(&self, wanted: &Self) -> Vec<String> {
        let order = |c: &Self| format!("{:?}", c.order).to_lowercase();
        let form = |c: &Self| {
            let form = c.form.map_or("rows", |SliceForm::Balanced| "balanced");
            form.to_owned()
        };
        // Users know both numbers of a stream of bins by other names.
        let (seq_len, rows_per_slice) = match wanted.form {
            Some(SliceForm::Balanced) => {
                ("packing.balanced.tokens", "packing.balanced.micro_batches")
            }
            None => ("seq_len", "rows_per_slice"),
        };
        let rows: [(&str, String, String); 8] = [
            ("slices", self.slices.to_string(), wanted.slices.to_string()),
            ("order", order(self), order(wanted)),
            ("producers", producer_names(self), producer_names(wanted)),
            (
                "tokenizer",
                self.tokenizer.name.clone(),
                wanted.tokenizer.name.clone(),
            ),
            (
                "tokenizer fingerprint",
                self.tokenizer.fingerprint.to_string(),
                wanted.tokenizer.fingerprint.to_string(),
            ),
            (
                seq_len,
                self.seq_len.to_string(),
                wanted.seq_len.to_string(),
            ),
            (
                rows_per_slice,
                self.rows_per_slice.to_string(),
                wanted.rows_per_slice.to_string(),
            ),
            ("form", form(self), form(wanted)),
        ];
        rows.into_iter()
            .filter(|(_, is, want)| is != want)
            .map(|(name, is, want)| {
                format!("{name}: the stream has {is:?}, this configuration {want:?}")
            })
            .collect()
    }
}

impl std::fmt::Display for ParentStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (step, root, stream) = (self.step, &self.root, self.stream);
        write!(
            f,
            "this stream is a fork that begins at step {step}; steps below it are in its parent, {root} (stream {stream})"
        )
    }
}

impl ParentStream {
    /// Checks the rules of the format page for the parent of stream `own`.
    fn check(&self, own: StreamId) -> Result<(), String> {
        if self.stream == own {
            return Err("parent: a stream cannot be its own parent".to_owned());
        }
        if self.step >= NUMBER_MAX || self.version.is_some_and(|v| v >= NUMBER_MAX) {
            return Err("parent: its numbers are above the limit".to_owned());
        }
        if self.root.len() > REASON_BYTES_MAX {
            return Err(format!(
                "parent: its root has more than {REASON_BYTES_MAX} bytes"
            ));
        }
        Ok(())
    }
}

fn producer_names(config: &StreamConfig) -> String {
    let names = config.producers.iter().map(ProducerName::as_str);
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
