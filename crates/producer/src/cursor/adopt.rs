//! From the state of `[source]` to that of the first of several sources, which others can join.

use batchweave_core::order::{Position, SamplerState, SourceState};
use serde_json::{Map, Value, json};

use super::{FILE_ORDER, SOURCES, State};

/// The settings of `[source]` that each source has, and their defaults, which are left out.
const OF_SOURCE: [(&str, &str); 3] = [("format", "auto"), ("field", "text"), ("column", "text")];
/// Those that are kept only where they are true.
const FLAGS: [&str; 2] = ["follow", "inbox"];

impl State {
    /// Returns whether this source is read in the order of its files: the producer began with `[source]`.
    pub(crate) fn is_in_file_order(&self, source: usize) -> bool {
        let sources = self.settings.get(SOURCES);
        let marked = sources.is_some_and(|sources| sources[0][FILE_ORDER] == true);
        source == 0 && (self.order.is_none() || marked)
    }

    /// Returns the position of the first source, if it is read in the order of its files.
    pub(crate) fn file_position(&self) -> Option<Position> {
        match &self.order {
            None => Some(self.at.place().position(self.at.pass)),
            Some(order) if self.is_in_file_order(0) => Some(order.at.first()?.position),
            Some(_) => None,
        }
    }

    /// Makes the state of `[source]` that of the first source of the settings `now`, and marks that one in them. A state of
    /// sources stays as it is.
    pub(crate) fn adopt(&mut self, now: &mut Map<String, Value>) {
        let files = self.is_in_file_order(0);
        let Some(Value::Array(sources)) = now.get_mut(SOURCES).filter(|_| files) else {
            return;
        };
        let Some(Value::Object(first)) = sources.first_mut() else {
            return;
        };
        first.insert(FILE_ORDER.to_owned(), json!(true));
        if self.order.is_some() {
            return;
        }
        let mut own = Map::new();
        for key in ["name", "weight", FILE_ORDER] {
            own.insert(key.to_owned(), first[key].clone());
        }
        for (key, default) in OF_SOURCE {
            let name = format!("source.{key}");
            let was = self.settings.get(&name).cloned().unwrap_or_default();
            if was != default {
                own.insert(key.to_owned(), was);
            }
            let is = now.get(&name).cloned().unwrap_or_default();
            self.settings.insert(name, is);
        }
        for key in FLAGS {
            let flag = self.settings.remove(&format!("source.{key}"));
            own.extend(flag.map(|flag| (key.to_owned(), flag)));
        }
        self.settings.insert(SOURCES.to_owned(), json!([own]));
        // No document before the cursor depends on it.
        let mixture = now.get("mixture").cloned();
        self.settings
            .extend(mixture.map(|mixture| ("mixture".to_owned(), mixture)));
        self.order = Some(self.sampler());
    }

    /// Returns the state of the sampler of a single source.
    fn sampler(&self) -> SamplerState {
        let position = self.at.place().position(self.at.pass);
        SamplerState {
            at: vec![SourceState { position, given: 0 }],
            // Each document has a piece, so at most this number was taken: until then no other source has its turn.
            ahead: self.placed.bound().max(self.carried.bound()),
            ..SamplerState::default()
        }
    }
}
