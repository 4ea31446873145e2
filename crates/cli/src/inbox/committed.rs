//! The rows of an inbox that a stream has, from its producers' cursors and input lists.

use std::collections::BTreeMap;

use batchweave_console::CliError;
use batchweave_console::sources::{self, Names};
use batchweave_core::cursor::Cursor;
use batchweave_core::ids::ProducerName;
use batchweave_core::inbox::{Listed, Object};
use batchweave_core::inputs::PinnedFile;
use batchweave_core::order::{Position, SamplerState, unnamed_source};
use batchweave_log::Log;
use serde::Deserialize;
use serde_json::Value;

use super::stored::StoredInbox;

/// The files of an inbox that the producers of a stream have read.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// By writer: the producer that reads it, and its files.
    pub(super) writers: BTreeMap<String, (ProducerName, Vec<ReadFile>)>,
}

/// A file in a producer's list.
#[derive(Debug, Clone)]
pub(super) struct ReadFile {
    /// Its index in the list.
    pub(super) index: usize,
    pub(super) pin: PinnedFile,
    /// Rows that are in committed batches; `None` for all.
    pub(super) rows: Option<u64>,
}

/// The part of a cursor that is needed here.
#[derive(Debug, Deserialize)]
struct At {
    pass: u64,
    file: usize,
    unit: u64,
    /// Items of that row which are committed.
    #[serde(default)]
    skip: u64,
}

/// The place of a producer.
struct Place {
    at: At,
    /// Of sources with names: passes that are over, by name.
    passes: Option<BTreeMap<String, u64>>,
    /// The first source, if it is read in the order of its files, and its place.
    first: Option<(String, Position)>,
}

impl Place {
    fn of(cursor: &Cursor) -> Option<Self> {
        let mut at: At = serde_json::from_value(cursor.0.get("at")?.clone()).ok()?;
        let mode = cursor.0.pointer("/settings/packing.mode");
        if mode.is_some_and(|mode| mode == "opaque") {
            // A sample is one item, so it is committed as a whole.
            at.unit += at.skip.min(1);
        }
        let order = cursor
            .0
            .get("order")
            .cloned()
            .and_then(|order| serde_json::from_value::<SamplerState>(order).ok());
        let named = cursor
            .0
            .pointer("/settings/sources")
            .and_then(Value::as_array);
        let name = |source: &Value| source["name"].as_str().unwrap_or_default().to_owned();
        let first = unnamed_source(cursor)
            .map(str::to_owned)
            .zip(order.as_ref().and_then(|order| order.at.first()))
            .map(|(name, state)| (name, state.position));
        let passes = order.zip(named).map(|(order, named)| {
            let passes = order.at.iter().map(|source| source.position.pass);
            named.iter().map(name).zip(passes).collect()
        });
        Some(Self { at, passes, first })
    }

    /// Returns the committed rows of file `index`; `None` for all.
    fn rows(&self, index: usize, pin: &PinnedFile) -> Option<u64> {
        if let Some((name, at)) = &self.first
            && pin.source.as_ref() == Some(name)
        {
            return match (index as u64).cmp(&at.group) {
                _ if at.pass > 0 => None,
                std::cmp::Ordering::Less => None,
                std::cmp::Ordering::Equal => Some(at.window),
                std::cmp::Ordering::Greater => Some(0),
            };
        }
        if let Some(passes) = &self.passes {
            // Within a growth the order is shuffled, so nothing before its end counts.
            let pass = pin.source.as_ref().and_then(|source| passes.get(source));
            return (pass.is_none_or(|pass| pin.growth >= *pass)).then_some(0);
        }
        if self.at.pass > 0 {
            // All writers have ended, and all is committed.
            return None;
        }
        match index.cmp(&self.at.file) {
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Equal => Some(self.at.unit),
            std::cmp::Ordering::Greater => Some(0),
        }
    }
}

/// Returns the inbox, the writer and the name of a file.
fn parts(name: &str) -> Option<(&str, &str, &str)> {
    let (folder, file) = name.rsplit_once('/')?;
    let (root, writer) = folder.rsplit_once('/')?;
    Some((root, writer, file))
}

impl Committed {
    /// Reads what all producers of `log` have of `inbox`.
    pub(super) async fn read(log: &mut Log, inbox: &StoredInbox) -> Result<Self, CliError> {
        let producers: Vec<_> = log
            .manifest()
            .producers()
            .map(|(name, _)| name.clone())
            .collect();
        let mut committed = Self::default();
        for producer in producers {
            let names: Names = sources::names(log, &producer).await?;
            let state = log.manifest().producer(&producer);
            let Some(place) = state.and_then(|state| Place::of(&state.cursor)) else {
                continue;
            };
            let mut known: BTreeMap<&str, bool> = BTreeMap::new();
            for (index, pin) in names.iter().enumerate() {
                let Some((root, writer, _)) = parts(&pin.name) else {
                    continue;
                };
                if !*known.entry(root).or_insert_with(|| inbox.has_root(root)) {
                    continue;
                }
                let own = committed.writers.entry(writer.to_owned());
                let (_, files) = own.or_insert_with(|| (producer.clone(), Vec::new()));
                files.push(ReadFile {
                    index,
                    pin: pin.clone(),
                    rows: place.rows(index, pin),
                });
            }
        }
        Ok(committed)
    }

    /// Returns the producer of `writer` and the rows that are committed.
    pub(super) async fn rows(
        &self,
        writer: &str,
        inbox: &StoredInbox,
    ) -> Result<Option<(ProducerName, u64)>, CliError> {
        let Some((producer, files)) = self.writers.get(writer) else {
            return Ok(None);
        };
        let numbered = |file: &ReadFile| {
            let name = file.pin.name.rsplit('/').next().unwrap_or_default();
            matches!(Object::named(name), Object::File(_))
        };
        if !files.iter().all(numbered) {
            let rows = job_rows(writer, files, inbox).await?;
            return Ok(Some((producer.clone(), rows)));
        }
        let open = files.iter().find(|file| file.rows.is_some());
        let Some(file) = open.or(files.last()) else {
            return Ok(None);
        };
        let footer = inbox.footer(writer, &listed(&file.pin)).await?;
        let within = file.rows.unwrap_or(footer.rows).min(footer.rows);
        Ok(Some((producer.clone(), footer.first_row + within)))
    }
}

/// Returns the committed rows of a job, whose files are read in the order of its commit.
async fn job_rows(writer: &str, files: &[ReadFile], inbox: &StoredInbox) -> Result<u64, CliError> {
    let commit = inbox.job(writer).await?;
    let rows = files.iter().map(|file| {
        let name = file.pin.name.rsplit('/').next().unwrap_or_default();
        let of = commit.files.iter().find(|own| own.name == name);
        let all = of.map_or(0, |own| own.rows);
        file.rows.map_or(all, |rows| rows.min(all))
    });
    Ok(rows.sum())
}

pub(super) fn listed(pin: &PinnedFile) -> Listed {
    Listed {
        name: pin.name.rsplit('/').next().unwrap_or_default().to_owned(),
        size: pin.size,
        fingerprint: None,
    }
}
