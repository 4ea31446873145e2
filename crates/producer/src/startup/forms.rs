//! The meaning of `source.format = "auto"` for each file, now and for an older cursor.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::config::{DocumentKind, NamedSource, ProducerConfig, SourceConfig};
use crate::cursor::NAMES;
use crate::sources::{Format, InputList, PinnedFile, SourceError, shown};

/// The configured format of each file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forms<'a> {
    /// The sources; without a name for the one of `[source]`.
    pub(super) sources: &'a [NamedSource],
}

/// The meaning that names had when a cursor was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    AsNow,
    Earlier,
}

impl Names {
    pub(super) fn of_settings(settings: &Map<String, Value>) -> Self {
        if settings.contains_key(NAMES) {
            Self::AsNow
        } else {
            Self::Earlier
        }
    }

    /// Returns how a file is read that is configured so.
    fn read(self, configured: Format, name: &str) -> Format {
        match (self, configured) {
            (Self::Earlier, Format::Auto) => Format::earlier_for_file(name),
            _ => configured.for_file(name),
        }
    }
}

/// Returns the format in the settings of a cursor.
fn stored_format(value: Option<&Value>) -> Format {
    let stored = value.and_then(|value| Format::deserialize(value).ok());
    stored.unwrap_or_default()
}

impl Forms<'_> {
    fn of(&self, file: &PinnedFile) -> Format {
        let own = file.source.as_deref();
        let source = self.sources.iter().find(|source| source.pin_name() == own);
        source.map_or(Format::default(), |source| source.format)
    }

    /// Returns the settings of now, with the mark of names where these decide otherwise than they did.
    pub(super) fn marked(
        &self,
        settings: &Map<String, Value>,
        list: &InputList,
    ) -> Map<String, Value> {
        let is_auto = |source: &NamedSource| source.format == Format::Auto;
        // Files of inboxes are Parquet, under both meanings of their names.
        let any_may_join = |source: &NamedSource| is_auto(source) && source.follow && !source.inbox;
        let differs = |file: &PinnedFile| {
            self.of(file) == Format::Auto
                && Names::Earlier.read(Format::Auto, &file.name)
                    != Format::Auto.for_file(&file.name)
        };
        let mut marked = settings.clone();
        if self.sources.iter().any(any_may_join) || list.files.iter().any(|file| differs(&file.pin))
        {
            marked.insert(NAMES.to_owned(), json!(2));
        }
        marked
    }

    /// Returns the settings `was` of a cursor with the formats of now, where these mean the same for all of its files.
    pub(super) fn adopted(
        &self,
        was: &Map<String, Value>,
        now: &Map<String, Value>,
        pins: &[PinnedFile],
    ) -> Map<String, Value> {
        let mut adopted = was.clone();
        let names = Names::of_settings(was);
        let same = |source: Option<&str>, was: Format, is: Format| {
            let mut own = pins.iter().filter(|pin| pin.source.as_deref() == source);
            own.all(|pin| names.read(was, &pin.name) == is.for_file(&pin.name))
        };
        if self.sources.iter().all(|source| source.name.is_empty()) {
            let key = "source.format";
            let (was, is) = (stored_format(was.get(key)), stored_format(now.get(key)));
            if same(None, was, is) {
                adopted.insert(key.to_owned(), json!(is));
            }
            return adopted;
        }
        let now: BTreeMap<&str, Format> = (self.sources.iter())
            .map(|source| (source.name.as_str(), source.format))
            .collect();
        let sources = adopted.get_mut("sources").and_then(Value::as_array_mut);
        let sources = sources.into_iter().flatten();
        for source in sources.filter_map(Value::as_object_mut) {
            let name = source.get("name").and_then(Value::as_str);
            let name = name.unwrap_or_default();
            let Some(is) = now.get(name).copied() else {
                continue;
            };
            if same(Some(name), stored_format(source.get("format")), is) {
                match is {
                    Format::Auto => source.remove("format"),
                    is => source.insert("format".to_owned(), json!(is)),
                };
            }
        }
        adopted
    }

    /// Returns one line for each of `pins` that a cursor with these names counts in another form than it has now.
    pub(super) fn differences<'p>(
        &self,
        names: Names,
        pins: impl Iterator<Item = &'p PinnedFile>,
    ) -> Vec<String> {
        let changed = pins.filter_map(|pin| {
            let configured = self.of(pin);
            let was = names.read(configured, &pin.name);
            let is = configured.for_file(&pin.name);
            let fault = Format::refusal(&pin.name).filter(|_| configured == Format::Auto);
            let is = match (is == was, fault) {
                (true, None) => return None,
                (true, Some(_)) => "not read any more".to_owned(),
                (false, _) => format!("read as {}", is.words()),
            };
            Some(format!(
                "{}: was read as {}, and is {is}; set source.format = \"{}\" to go on, if all files are so",
                shown(&pin.name),
                was.words(),
                was.key()
            ))
        });
        changed.take(20).collect()
    }
}

/// Fails when `source.format = "auto"` has no reader for a file, or takes one for text that the configuration says is none.
pub(super) fn check(config: &ProducerConfig, list: &InputList) -> Result<(), SourceError> {
    let all = config.by_source();
    let default = SourceConfig::default();
    for (config, named) in all.iter().zip(config.all_sources()) {
        let source = &config.source;
        if source.format != Format::Auto {
            continue;
        }
        let pins = list.files.iter().map(|file| &file.pin);
        let own = pins.filter(|pin| pin.source.as_deref() == named.pin_name());
        let text: Vec<&PinnedFile> = own
            .filter(|pin| source.format.for_file(&pin.name) == Format::Text)
            .collect();
        refuse(&text)?;
        let texts = config.documents() == DocumentKind::Text;
        if !texts {
            // Reading a text gives the reason.
            continue;
        }
        let key = if source.field != default.field {
            "source.field"
        } else if source.column != default.column {
            "source.column"
        } else {
            continue;
        };
        if let Some(first) = text.first() {
            return Err(SourceError::KeyOfText {
                first: first.name.clone(),
                number: text.len(),
                key,
            });
        }
    }
    Ok(())
}

fn refuse(text: &[&PinnedFile]) -> Result<(), SourceError> {
    let mut refused = text
        .iter()
        .filter_map(|pin| Some((pin, Format::refusal(&pin.name)?)));
    match refused.next() {
        None => Ok(()),
        Some((first, why)) => Err(SourceError::NoReader {
            first: first.name.clone(),
            number: 1 + refused.count(),
            why,
        }),
    }
}

#[cfg(test)]
mod tests;
