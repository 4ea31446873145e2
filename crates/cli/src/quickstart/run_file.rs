//! The text of run.toml: the chosen keys, each with a comment that says why and how to change it.

use std::fmt::Write as _;

use batchweave_daemon::figures::grouped;
use batchweave_daemon::survey::FileGroup;
use serde_json::Value;

use super::choose::{Choice, Content};
use super::model::Model;
use super::shape::Shape;

/// Everything that the file says.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// The root of the stream as the file names it.
    pub(super) store: &'a str,
    /// Further keys of `[store]`.
    pub(super) store_keys: Vec<(&'a str, &'a str)>,
    pub(super) group: &'a FileGroup,
    pub(super) choice: &'a Choice,
    pub(super) shape: Shape,
    pub(super) model: Option<&'a Model>,
    /// The template of conversations.
    pub(super) template: Option<String>,
}

impl Plan<'_> {
    /// Returns whether the tokens can be decoded.
    pub(super) fn has_text(&self) -> bool {
        self.model.is_some() || !matches!(self.choice.content, Content::Ids { .. })
    }

    /// Returns the text of run.toml.
    pub(super) fn run_file(&self) -> String {
        let mut text = "# Written by `batchweave quickstart`: yours to change. All keys: docs/configuration.md.\n\
                        # Relative paths start at the folder in which the command runs.\n\n"
            .to_owned();
        self.add_store(&mut text);
        self.add_source(&mut text);
        self.add_stream(&mut text);
        self.add_packing(&mut text);
        self.add_tokenizer(&mut text);
        text += "\n[job]\n# The training run, for batchweave.connect(job=\"train\").\nname = \"train\"\n";
        text
    }

    fn add_store(&self, text: &mut String) {
        let _ = write!(
            text,
            "[store]\n# Root of the stream: a folder, or s3://bucket/prefix. The keys below decide the bytes of the stream: to change\n\
             # them once it has steps, name a new root, or delete this one with `batchweave delete`.\nurl = {}\n",
            quoted(self.store)
        );
        for (key, value) in &self.store_keys {
            let _ = writeln!(text, "{key} = {}", quoted(value));
        }
    }

    fn add_source(&self, text: &mut String) {
        let group = self.group;
        let paths: Vec<String> = group.paths.iter().map(|path| quoted(path)).collect();
        let _ = write!(
            text,
            "\n[source]\n# {} {}, {} bytes. Files that are added after the first run are not read (source.follow).\npaths = [{}]\n",
            grouped(group.files),
            if group.files == 1 { "file" } else { "files" },
            grouped(group.bytes),
            paths.join(", ")
        );
        self.add_content(text);
        let (missing, sampled) = self.choice.missing;
        if missing > 0 {
            let _ = write!(
                text,
                "# {missing} of {sampled} sampled documents have no such value: they are skipped, counted and logged. \"fail\" stops at the first.\n\
                 on_bad_document = \"skip\"\n"
            );
        }
        text.push_str("# Passes over the data; 0 repeats without end.\nepochs = 1\n");
    }

    fn add_content(&self, text: &mut String) {
        let key = self.field_key();
        match &self.choice.content {
            Content::Files { by_line: true } => {
                text.push_str("# Each line is a document: the files are too large for one each.\nformat = \"lines\"\n");
            }
            Content::Files { by_line: false } => {
                text.push_str(
                    "# Each file is a document; format = \"lines\" makes one of each line.\n",
                );
            }
            Content::Text { field } | Content::Captions { field, .. } => {
                let others = self.others();
                let _ = writeln!(
                    text,
                    "# The text of a document.{others}\n{key} = {}",
                    quoted(field)
                );
            }
            Content::Ids { field, .. } => {
                let _ = writeln!(
                    text,
                    "# Documents are lists of token ids.{}\ncontent = \"ids\"\n{key} = {}",
                    self.others(),
                    quoted(field)
                );
            }
            Content::Chat { .. } | Content::Pairs => {}
        }
    }

    /// Returns the key of `[source]` that names the field.
    pub(super) fn field_key(&self) -> &'static str {
        if ["parquet", "arrow"].contains(&self.group.format.as_str()) {
            "column"
        } else {
            "field"
        }
    }

    fn others(&self) -> String {
        let others = &self.choice.others;
        if others.is_empty() {
            return String::new();
        }
        let others: Vec<String> = others.iter().map(|name| quoted(name)).collect();
        format!(" These would fit too: {}.", others.join(", "))
    }

    fn add_stream(&self, text: &mut String) {
        let Shape {
            slices,
            rows,
            seq_len,
            tokens,
            ..
        } = self.shape;
        let batch = u64::from(self.shape.batch());
        let _ = write!(
            text,
            "\n[stream]\n# About {} tokens of data, by a sample, and {} tokens per step: small data get small steps, so that there are some.\n\
             # Slices per step: the number of data-parallel ranks must divide it.\nslices = {slices}\n\
             # Rows per slice, and tokens per row.\nrows_per_slice = {rows}\nseq_len = {seq_len}\n",
            grouped(tokens as u64),
            grouped(batch)
        );
    }

    fn add_packing(&self, text: &mut String) {
        text.push_str("\n[packing]\n");
        match &self.choice.content {
            Content::Chat { .. } => text.push_str(
                "# Whole conversations in a row; loss_mask marks the assistant's text, which alone is learned.\nmode = \"chat\"\nfields = [\"loss_mask\"]\n",
            ),
            Content::Pairs => text.push_str(
                "# A preferred answer in each even row, the rejected one in the next.\nmode = \"pairs\"\nfields = [\"loss_mask\"]\n",
            ),
            Content::Captions { pictures, .. } => {
                let _ = write!(
                    text,
                    "# Whole texts in a row, each with its picture, cut to 224 x 224: batch[\"image\"] beside the tokens.\nmode = \"best_fit\"\n\
                     fields = [\"loss_mask\", \"segment_ids\"]\n\
                     arrays = [{{ name = \"image\", from = {}, dtype = \"U8\", shape = [224, 224, 3], image = \"crop\" }}]\n",
                    quoted(pictures)
                );
            }
            _ => {
                text.push_str(
                    "# Documents one after another, cut where a row ends.\nmode = \"concat\"\n\
                     # Rows are shuffled, so that a long document does not fill step after step.\nshuffle_rows = { tokens = 8388608 }\n",
                );
                if self.shape.pads {
                    text.push_str("# 0 at padding, which is not learned.\nfields = [\"loss_mask\"]\n");
                }
            }
        }
        if self.shape.pads {
            text.push_str("# The last step is filled up with padding; \"drop\" leaves its documents out.\nlast_batch = \"pad\"\n");
        }
        self.add_chat(text);
    }

    fn add_chat(&self, text: &mut String) {
        let Some(template) = &self.template else {
            return;
        };
        let why = if self.model.is_some_and(|model| model.template.is_some()) {
            "The model's own template."
        } else {
            "No model's template was found: a plain one, for a try. Before you train a model, name its own template here, and its\n# tokenizer below."
        };
        let _ = write!(text, "\n[chat]\n# {why}\ntemplate = {}\n", quoted(template));
        if let Content::Chat { field, keys, roles } = &self.choice.content {
            let _ = writeln!(
                text,
                "# The field with the messages, and the fields of a message.\nmessages = {}\nrole_key = {}\ncontent_key = {}",
                quoted(field),
                quoted(&keys.0),
                quoted(&keys.1)
            );
            if !roles.is_empty() {
                let roles: Vec<String> = roles
                    .iter()
                    .map(|(own, other)| format!("{} = {}", quoted(own), quoted(other)))
                    .collect();
                let _ = writeln!(text, "roles = {{ {} }}", roles.join(", "));
            }
        }
    }

    fn add_tokenizer(&self, text: &mut String) {
        text.push_str("\n[tokenizer]\n");
        if let Some(model) = self.model {
            let path = model.tokenizer.display().to_string();
            let _ = write!(
                text,
                "# A model's tokenizer.\nkind = \"file\"\npath = {}\n",
                quoted(&path)
            );
            return;
        }
        if let Content::Ids { largest, end, .. } = &self.choice.content {
            let size = (largest + 1).next_power_of_two().max(1 << 16);
            let _ = write!(
                text,
                "# No tokenizer runs. The largest sampled id is {largest}; all ids must be below vocab_size.\nkind = \"none\"\nvocab_size = {size}\n\
                 # All sampled documents end with it.\nend_token_id = {}\n",
                end.unwrap_or_default()
            );
            return;
        }
        text.push_str(
            "# Part of the program. For a model's own: kind = \"file\", path = \"model/tokenizer.json\".\nkind = \"embedded\"\nname = \"gpt2\"\n",
        );
    }
}

/// Returns a text as a string of TOML: one of JSON is one of TOML, too.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
