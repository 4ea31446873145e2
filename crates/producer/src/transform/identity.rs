//! The identity of a stream: its tokenizer, and how slices differ from plain rows.

use batchweave_core::ids::Hash;
use batchweave_core::stream::TokenizerId;

use super::{DocumentTransform, Kind};
use crate::config::PackingMode;
use crate::packing::ArraySpec;

impl DocumentTransform {
    /// Returns the identity that stream.json keeps: the tokenizer, and how slices differ from plain rows.
    pub fn identity(&self) -> TokenizerId {
        let tokenizer = match &self.kind {
            Kind::Text { tokenizer, .. } | Kind::Chat { tokenizer, .. } => {
                tokenizer.identity().id.clone()
            }
            Kind::Arrays(arrays) => {
                let arrays: Vec<String> = arrays.iter().map(ArraySpec::text).collect();
                let name = format!("none; arrays {}", arrays.join(", "));
                let fingerprint = Hash::sha256(name.as_bytes());
                return TokenizerId { name, fingerprint };
            }
        };
        let form = self.form_parts(self.mode).join(", ");
        if form.is_empty() {
            return tokenizer;
        }
        let fingerprint = Hash::sha256(format!("{}; {form}", tokenizer.fingerprint).as_bytes());
        let name = format!("{}; {form}", tokenizer.name);
        TokenizerId { name, fingerprint }
    }

    /// Returns how slices of this mode differ from plain rows.
    pub(super) fn form_parts(&self, mode: PackingMode) -> Vec<String> {
        let mut parts: Vec<String> = Vec::new();
        if mode != PackingMode::Concat {
            parts.push(name(mode));
        }
        parts.extend(self.beside.extras.iter().map(|extra| name(*extra)));
        let columns = self.beside.columns.iter();
        parts.extend(columns.map(|spec| format!("column {}", spec.text())));
        let arrays = self.beside.arrays.iter();
        parts.extend(arrays.map(|spec| format!("array {}", spec.text())));
        if let Kind::Chat { chat, .. } = &self.kind
            && !parts.is_empty()
        {
            let template = Hash::sha256(chat.fingerprint().as_bytes());
            parts.push(format!("template {:.8}", template.to_string()));
        }
        parts
    }
}

/// Returns the name of a configuration value, for example `best_fit`.
fn name(word: impl serde::Serialize) -> String {
    let word = serde_json::to_value(word).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}
