//! Documents through a function of the user, in Python, in processes of their own (`process`), which a `pool` starts and
//! lends to the tokenizing threads. `message` is what both sides say, `worker.py` the other side.
//!
//! A document goes in as a dict of its fields, and the dict that comes out, or each of several, takes its place: as a line of
//! JSONL, or as arrays. Results keep the order of the documents. A process that dies, hangs or grows costs at most the document that
//! it was at.

mod family;
#[cfg(test)]
mod hostile_tests;
mod message;
mod output;
mod pool;
mod process;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::Value;

use self::message::{Answer, Body, Document, Wanted};
pub use self::pool::FunctionError;
use self::pool::Pool;
use super::arrays::from_json;
use crate::config::{DocumentKind, ProducerConfig};
use crate::packing::ArraySpec;
use crate::sources::{Cell, Place, Reason, Unit, UnitKind};

/// The function of the configuration, with its processes.
pub struct Function {
    pool: Pool,
    /// The arrays of samples, or those beside tokens.
    arrays: Vec<ArraySpec>,
    /// Documents have no tokens.
    opaque: bool,
    /// The fields that documents have besides their text, ids or messages.
    beside: Vec<String>,
    /// The configured names of the content.
    content: ContentFields,
    /// The fields that are read of a tar's sample, as the function gets them.
    members: Vec<String>,
}

/// The fields of a document with tokens.
enum ContentFields {
    /// The one field of its source.
    Source,
    Named {
        wanted: Vec<String>,
        optional: Vec<String>,
    },
}

/// The form of a document from the function, its bytes and its cells.
type Made = (UnitKind, Bytes, Vec<Cell>);

/// The documents of a unit, after the function.
#[derive(Debug)]
pub struct Prepared {
    /// The unit, or the first document that the function made of it.
    pub unit: Unit,
    /// The other documents that it made of it, which have the place of the first one.
    pub more: Vec<Unit>,
}

impl Prepared {
    /// Returns a unit as it was read.
    pub(crate) fn as_read(unit: Unit) -> Self {
        let more = Vec::new();
        Self { unit, more }
    }
}

/// The outcome of some documents.
#[derive(Debug, Default)]
pub struct Applied {
    /// For each unit what it became; `None` of one that the function left out.
    pub units: Vec<Option<Prepared>>,
    /// Documents that the function left out.
    pub dropped: u64,
    /// Processes that ended, and were started again.
    pub deaths: u64,
}

impl Function {
    /// Starts the first process, so that a function that can't be loaded is reported at the start. `None` when no function
    /// is configured.
    pub fn start(config: &ProducerConfig) -> Result<Option<Self>, FunctionError> {
        if config.transform.function.is_empty() {
            return Ok(None);
        }
        let arrays = config.packing.arrays.clone();
        let extra = config.packing.extra.iter().map(ArraySpec::source);
        let mask = [config.source.mask.as_str()].into_iter();
        let beside = mask.filter(|name| !name.is_empty()).chain(extra);
        let members = config.function_fields(true);
        Ok(Some(Self {
            pool: Pool::start(config, &arrays)?,
            beside: beside.map(str::to_owned).collect(),
            content: ContentFields::from_config(config),
            members: members.iter().map(|field| first_name(field)).collect(),
            arrays,
            opaque: config.documents() == DocumentKind::Sample,
        }))
    }

    /// Applies the function to documents of a source, whose text or ids are in `field`.
    pub(crate) fn apply(&self, field: &str, units: Vec<Unit>) -> Applied {
        let mut results: Vec<Option<Prepared>> = Vec::with_capacity(units.len());
        let mut documents = Vec::new();
        let mut places = Vec::new();
        for unit in units {
            let (place, kind) = (unit.place, unit.kind);
            let key = key(&unit);
            let content = match self.document(unit) {
                Ok(None) => {
                    results.push(None);
                    continue;
                }
                Ok(Some(document)) => {
                    documents.push(document);
                    places.push((results.len(), key));
                    Ok(Vec::new().into())
                }
                Err(reason) => Err(reason),
            };
            let unit = Unit {
                place,
                kind,
                raw: content,
                cells: Vec::new(),
            };
            results.push(Some(Prepared::as_read(unit)));
        }
        let mut dropped = 0;
        let done = self.pool.apply(&self.wanted(field), &documents);
        for (answer, (at, key)) in done.answers.into_iter().zip(places) {
            if let Some(result) = results.get_mut(at) {
                dropped += u64::from(self.put_answer(result, answer, key));
            }
        }
        Applied {
            units: results,
            dropped,
            deaths: done.deaths,
        }
    }

    /// Puts what the function made of a document in its place; `key` is that of a tar's sample. Returns whether it left
    /// the document out.
    fn put_answer(
        &self,
        result: &mut Option<Prepared>,
        answer: Answer,
        key: Option<String>,
    ) -> bool {
        let Some(read) = result else {
            return false;
        };
        match self.prepared(read.unit.place, answer) {
            Ok(made) => {
                *result = made;
                result.is_none()
            }
            Err(why) => {
                read.unit.raw = Err(match key {
                    Some(key) => why.in_sample(&key),
                    None => why,
                });
                false
            }
        }
    }

    /// Ends the processes that wait for work.
    pub(crate) fn renew(&self) {
        self.pool.renew();
    }

    /// Returns the document in `unit`; `None` for a blank line.
    fn document(&self, unit: Unit) -> Result<Option<Document>, Reason> {
        let raw = unit.raw?;
        let line = matches!(unit.kind, UnitKind::Json | UnitKind::Line);
        if line && raw.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let first = unit.place.unit == 0;
        match unit.kind {
            UnitKind::Json => Ok(Some(Document::line(raw, first))),
            UnitKind::Row => Ok(Some(Document::row(raw))),
            UnitKind::Text | UnitKind::Line => Ok(Some(Document::text(raw, first))),
            UnitKind::Sample => Ok(Some(Document::sample(&raw, &self.members, unit.cells))),
            UnitKind::Array | UnitKind::Ids => Err(Reason::NotForFunction),
        }
    }

    fn wanted(&self, field: &str) -> Wanted {
        let (mut wanted, optional) = match &self.content {
            ContentFields::Source => (vec![field.to_owned()], Vec::new()),
            ContentFields::Named { wanted, optional } => (wanted.clone(), optional.clone()),
        };
        wanted.extend(self.beside.iter().cloned());
        Wanted { wanted, optional }
    }

    /// Returns the documents that the function returned for the one at `place`; `None` when it left that one out.
    fn prepared(&self, place: Place, answer: Answer) -> Result<Option<Prepared>, Reason> {
        let unit = |(kind, raw, cells): Made| Unit {
            place,
            kind,
            raw: Ok(raw),
            cells,
        };
        let mut units = self.documents(answer)?.into_iter().map(unit);
        let first = units.next().map(Prepared::as_read);
        Ok(first.map(|first| Prepared {
            more: units.collect(),
            ..first
        }))
    }

    /// Returns the documents that the function returned; none of one that it left out.
    fn documents(&self, answer: Answer) -> Result<Vec<Made>, Reason> {
        match answer {
            Answer::Dropped => Ok(Vec::new()),
            Answer::NoProcess(why) => Err(Reason::NoWorker { why }),
            Answer::Failed(detail) => Err(Reason::Function { detail }),
            Answer::Documents(documents) => {
                let of = documents.len();
                let documents = (1..).zip(documents);
                let made = documents.map(|(number, parts)| {
                    self.content(parts)
                        .map_err(|why| why.of_several(number, of))
                });
                made.collect()
            }
        }
    }

    /// Returns the document in the parts that the function returned for it.
    fn content(&self, parts: Vec<Body>) -> Result<Made, Reason> {
        let mut parts = VecDeque::from(parts);
        let object = parts.pop_front_if(|_| !self.opaque);
        let cells = self
            .arrays
            .iter()
            .zip(parts)
            .map(|(spec, body)| match body {
                Body::Bytes(bytes) => Ok(Cell::Bytes(bytes)),
                Body::Json(text) => {
                    let value: Value =
                        serde_json::from_slice(&text).map_err(|why| Reason::broken_json(&why))?;
                    from_json(spec, &value).map(|data| Cell::Bytes(data.into()))
                }
            })
            .collect::<Result<_, _>>()?;
        Ok(match object {
            Some(Body::Json(object)) => (UnitKind::Json, object, cells),
            // As the cells of a row.
            _ => (UnitKind::Row, Bytes::new(), cells),
        })
    }
}

/// Returns the key of a tar's sample.
fn key(unit: &Unit) -> Option<String> {
    let raw = unit.raw.as_ref().ok();
    let key = raw.filter(|_| unit.kind == UnitKind::Sample)?;
    Some(String::from_utf8_lossy(key).into_owned())
}

impl ContentFields {
    fn from_config(config: &ProducerConfig) -> Self {
        let chat = &config.chat;
        let named = |wanted: &[&String], optional: &[&String]| Self::Named {
            wanted: wanted.iter().map(|name| (*name).clone()).collect(),
            optional: optional.iter().map(|name| (*name).clone()).collect(),
        };
        match config.documents() {
            DocumentKind::Conversation => named(&[&chat.messages], &[&chat.tools]),
            DocumentKind::Pair => named(
                &[&chat.chosen, &chat.rejected],
                &[&chat.prompt, &chat.tools],
            ),
            DocumentKind::Sample => named(&[], &[]),
            DocumentKind::Text | DocumentKind::Ids => Self::Source,
        }
    }
}

/// Returns the name under which the function gets a field of a tar's sample with the alternatives in `field`.
fn first_name(field: &str) -> String {
    field.split(';').next().unwrap_or(field).trim().to_owned()
}
