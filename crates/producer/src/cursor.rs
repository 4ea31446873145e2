//! The content of a producer's cursor: a point in its token sequence, the input list that the point counts in,
//! and the settings that decide the bytes. A restart with another input or other settings would make other
//! batches, so each difference is an error that names it.

use std::collections::BTreeSet;

use batchweave_core::cursor::Cursor;
use batchweave_core::inputs::LinkId;
use batchweave_core::order::SamplerState;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::packing::{Carried, HandOver, Placed, Point, Restart, RowWindow};

mod adopt;

const FORMAT: u32 = 1;
/// The setting of a cursor before which a document was read as Python reads JSON. Without it, all pieces that the cursor
/// counts are of standard JSON: other documents were bad.
pub(crate) const AS_PYTHON: &str = "source.json";
/// The settings of each source with a name.
const SOURCES: &str = "sources";
/// The setting of the first source by which it is read in the order of its files: its producer began with `[source]`.
const FILE_ORDER: &str = "files";
/// The settings of the stages that have begun, by name.
pub(crate) const STAGES: &str = "stages";
/// The setting of a cursor by which `source.format = "auto"` means what it means now. Without it, it means what it meant in
/// earlier releases, for whose files both are the same.
pub(crate) const NAMES: &str = "source.names";

/// The restart state that a cursor stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    format: u32,
    /// The point where the next batch begins.
    pub at: Point,
    /// The pieces from that point on that earlier batches hold.
    #[serde(default, skip_serializing_if = "Placed::is_empty")]
    pub placed: Placed,
    /// Of bins: the pieces from that point on that wait, among those that earlier batches hold.
    #[serde(default, skip_serializing_if = "Carried::is_empty")]
    pub carried: Carried,
    /// The window of batches that begins at that point, of which earlier batches are some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<RowWindow>,
    /// The hand-over of an earlier packer, whose point that is; `placed` is then counted behind the pieces that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Box<HandOver>>,
    /// Of sources with names: the state of the sampler before the document at that point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<SamplerState>,
    /// Name of the input list, which is stored beside the log under `keys::inputs`. Reclamation reads it too
    /// (`inputs::head_of`).
    pub inputs: LinkId,
    /// The settings that decide the bytes, by configuration key.
    pub settings: Map<String, Value>,
}

/// The reason why a producer cannot continue from a cursor.
#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    /// The cursor was not written by this kind of producer.
    #[error(
        "the cursor of producer {producer} was not written by this kind of producer ({detail}); use another producer name"
    )]
    Foreign { producer: String, detail: String },
    /// The configuration has one source, and the cursor counts documents of several.
    #[error(
        "producer {producer} was started with [[sources]], and this configuration has [source]: its place counts \
         documents in another order; go back to [[sources]], or start a new producer name"
    )]
    Sources { producer: String },
    /// The configuration would end the run where the producer goes on so far.
    #[error(
        "producer {producer} repeats sources without end (epochs = 0) also after all others have given their passes; \
         now mixture.when_source_ends = \"last\" would end it with them: set it to \"go-on\" to go on as before, or \
         start a new producer name"
    )]
    EndsEarlier { producer: String },
    /// Settings that decide the bytes were changed.
    #[error(
        "producer {producer} was started with other settings:\n  {}\nset them back, or start a new producer name",
        .differences.join("\n  ")
    )]
    Settings {
        producer: String,
        /// One line per setting.
        differences: Vec<String>,
    },
}

impl State {
    /// Returns the state for a producer that continues at `restart`.
    pub fn new(restart: Restart, inputs: LinkId, settings: Map<String, Value>) -> Self {
        Self {
            format: FORMAT,
            at: restart.at,
            placed: restart.placed,
            carried: restart.carried,
            window: restart.window,
            left: restart.left,
            order: None,
            inputs,
            settings,
        }
    }

    /// Returns the state with that of the sampler of several sources.
    #[must_use]
    pub fn with_order(self, order: Option<SamplerState>) -> Self {
        Self { order, ..self }
    }

    /// Returns the cursor as the log stores it.
    pub fn to_cursor(&self) -> Cursor {
        // Maps with string keys and plain numbers always have a JSON form.
        Cursor(serde_json::to_value(self).unwrap_or_default())
    }

    /// Reads a cursor; `None` before the first commit.
    pub fn from_cursor(cursor: &Cursor, producer: &str) -> Result<Option<Self>, CursorError> {
        if cursor.0.is_null() {
            return Ok(None);
        }
        let foreign = |detail: String| CursorError::Foreign {
            producer: producer.to_owned(),
            detail,
        };
        let state: Self =
            serde_json::from_value(cursor.0.clone()).map_err(|e| foreign(e.to_string()))?;
        if state.format != FORMAT {
            return Err(foreign(format!("format {}, not {FORMAT}", state.format)));
        }
        Ok(Some(state))
    }

    /// Returns the settings that differ from the cursor's, each in words.
    fn differences(&self, now: &Map<String, Value>) -> Vec<String> {
        let all_keys = self.settings.keys().chain(now.keys());
        // Whether these two fit is known from the files.
        let keys: BTreeSet<&String> = all_keys
            .filter(|key| *key != AS_PYTHON && *key != NAMES)
            .collect();
        let null = Value::Null;
        keys.into_iter()
            .map(|key| {
                (
                    key,
                    self.settings.get(key).unwrap_or(&null),
                    now.get(key).unwrap_or(&null),
                )
            })
            .filter(|(key, was, is)| {
                was != is && !(key.as_str() == "mixture" && is_same_mixture(was, is))
            })
            .filter_map(|(key, was, is)| difference(key, was, is))
            .collect()
    }

    /// Returns an error that names all settings that differ from the cursor's.
    pub fn check_settings(
        &self,
        now: &Map<String, Value>,
        producer: &str,
    ) -> Result<(), CursorError> {
        if self.settings.contains_key(SOURCES) && !now.contains_key(SOURCES) {
            return Err(CursorError::Sources {
                producer: producer.to_owned(),
            });
        }
        let goes_on = self.settings.get("mixture").is_none_or(goes_on);
        if goes_on && now.get("mixture").is_some_and(ends_with_last) && self.order.is_some() {
            return Err(CursorError::EndsEarlier {
                producer: producer.to_owned(),
            });
        }
        let differences = self.differences(now);
        if differences.is_empty() {
            return Ok(());
        }
        Err(CursorError::Settings {
            producer: producer.to_owned(),
            differences,
        })
    }
}

/// Returns the message about a setting that differs; `None` where the cursor can go on with the new value.
fn difference(key: &str, was: &Value, is: &Value) -> Option<String> {
    match (key, added_sources(was, is)) {
        ("sources", Some(added)) => weighted(added),
        ("sources", None) if was[0][FILE_ORDER] == true && !is[0]["seed"].is_null() => {
            let name = &is[0]["name"];
            Some(format!(
                "sources: the first one, here {name}, is that of [source], in the order of its files: it takes no shuffle"
            ))
        }
        _ => Some(format!("{key}: was {was}, is {is}")),
    }
}

fn ends_with_last(mixture: &Value) -> bool {
    mixture["when_source_ends"] == "last"
}

fn goes_on(mixture: &Value) -> bool {
    mixture.is_null() || mixture["when_source_ends"] == "go-on"
}

/// Returns whether two mixtures differ at most in that the first ended with its last source and the second goes on,
/// which a limit, for example, asks for: no batch before the cursor depends on it.
fn is_same_mixture(was: &Value, is: &Value) -> bool {
    let unit = |mixture: &Value| mixture["unit"].as_str().unwrap_or("tokens").to_owned();
    ends_with_last(was) && goes_on(is) && unit(was) == unit(is)
}

/// Returns the sources that `is` has after all of `was`; `None` when it has other ones, or no more.
fn added_sources<'v>(was: &Value, is: &'v Value) -> Option<&'v [Value]> {
    let (was, is) = (was.as_array()?, is.as_array()?);
    let (same, added) = is.split_at_checked(was.len())?;
    (same == was.as_slice() && !added.is_empty()).then_some(added)
}

/// Returns why added sources cannot have these weights: what the producer has given so far counts for the others.
fn weighted(added: &[Value]) -> Option<String> {
    let weighted = added.iter().find(|source| source["weight"] != 0.0)?;
    let name = &weighted["name"];
    Some(format!(
        "sources: {name} is new, and begins with weight = 0; give it a share with `batchweave mixture set SOURCE=WEIGHT ...`, of all sources, when the \
         producer has committed a batch"
    ))
}

impl State {
    /// Returns the names of the sources that the settings of now have and this state lacks.
    pub(crate) fn new_sources(&self, now: &Map<String, Value>) -> BTreeSet<String> {
        let none = Value::Null;
        let of = |settings: &Map<String, Value>| settings.get("sources").unwrap_or(&none).clone();
        let was = of(&self.settings);
        let is = of(now);
        let added = added_sources(&was, &is).unwrap_or_default().iter();
        added
            .filter_map(|source| Some(source["name"].as_str()?.to_owned()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use batchweave_core::ids::{Hash, Nonce};
    use batchweave_core::inputs::head_of;
    use serde_json::json;

    use super::*;
    use crate::packing::LOOK_AHEAD_MAX;

    fn list() -> LinkId {
        LinkId {
            epoch: u64::MAX,
            nonce: Nonce([0xff; 8]),
            files: u64::MAX,
            hash: Hash::sha256(b"x"),
        }
    }

    fn settings(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_cursor_comes_back_and_stays_small() {
        let at = Point {
            pass: u64::MAX >> 11,
            file: u32::MAX,
            unit: 1 << 52,
            offset: 1 << 52,
            skip: 1 << 52,
        };
        let placed = (0..LOOK_AHEAD_MAX).map(|_| true).collect();
        let window = Some(RowWindow {
            first: 1 << 52,
            batches: 1 << 52,
            given: 1 << 52,
            documents: Some(1 << 52),
        });
        let state = State::new(
            Restart {
                at,
                placed,
                window,
                ..Restart::default()
            },
            list(),
            settings(json!({"source.field": "f".repeat(1000)})),
        );
        let cursor = state.to_cursor();
        assert!(cursor.fits());
        assert_eq!(
            head_of(&cursor),
            Ok(Some(list())),
            "as reclamation reads it"
        );
        assert_eq!(State::from_cursor(&cursor, "p").unwrap(), Some(state));
        assert_eq!(State::from_cursor(&Cursor::default(), "p").unwrap(), None);
    }

    #[test]
    fn all_changed_settings_in_one_message() {
        let was = State::new(
            Restart::default(),
            list(),
            settings(json!({"a": 1, "b": "x", "c": 0})),
        );
        was.check_settings(&was.settings, "p").unwrap();
        let why = was
            .check_settings(&settings(json!({"a": 2, "b": "x", "d": 0})), "p")
            .unwrap_err()
            .to_string();
        for part in [
            "producer p",
            "a: was 1, is 2",
            "c: was 0, is null",
            "d: was null, is 0",
        ] {
            assert!(why.contains(part), "{part} in {why}");
        }
        assert!(!why.contains("b: was"), "{why}");
    }

    #[test]
    fn an_end_with_the_last_source_begins_only_with_a_new_producer() {
        let of = |mixture: Value| State {
            order: Some(SamplerState::start(2)),
            ..State::new(Restart::default(), list(), settings(mixture))
        };
        let last = json!({"mixture": {"unit": "tokens", "when_source_ends": "last"}});
        let (none, documents) = (
            json!({}),
            json!({"mixture": {"unit": "documents", "when_source_ends": "go-on"}}),
        );
        let check = |was: &Value, is: &Value| {
            let checked = of(was.clone()).check_settings(&settings(is.clone()), "p");
            checked.err().map(|why| why.to_string())
        };
        for (was, is, part) in [
            (&none, &last, Some("set it to \"go-on\" to go on as before")),
            (&documents, &last, Some("set it to \"go-on\"")),
            (&last, &last, None),
            (&last, &none, None),
            (&last, &documents, Some("mixture: was")),
            (&none, &documents, Some("mixture: was null")),
        ] {
            let why = check(was, is);
            match part {
                Some(part) => assert!(
                    why.as_ref().is_some_and(|why| why.contains(part)),
                    "{why:?}"
                ),
                None => assert_eq!(why, None),
            }
        }
    }

    #[test]
    fn a_foreign_cursor_is_refused() {
        for foreign in [
            json!({"offset": 3}),
            json!(7),
            json!({"format":2,"at":Point::default(),"inputs":list(),"settings":{}}),
        ] {
            let why = State::from_cursor(&Cursor(foreign), "p")
                .unwrap_err()
                .to_string();
            assert!(why.contains("use another producer name"), "{why}");
        }
    }
}
