//! The source documents of a step's rows without their text, and those of the other steps of the same provenance
//! object: a client that asks step by step then needs one answer per object.

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::output::{Style, cells, printable, table};
use batchweave_console::sources::{self, Names};
use batchweave_core::ids::Step;
use batchweave_core::manifest::{Manifest, StepEntry};
use batchweave_core::provenance::{Piece, Provenance, Sources};
use batchweave_log::{Located, Log};
use serde::Serialize;

/// Most documents in an answer, beyond those of the step itself.
const DOCUMENTS_MAX: usize = 20_000;
/// Most steps that are looked up on each side of the step: other producers' steps lie between those of one object.
const STEPS_MAX: u64 = 4096;

/// The documents of one step.
#[derive(Debug, Serialize)]
pub(super) struct StepDocuments {
    step: Step,
    documents: Vec<Document>,
}

/// A document in a row, or the part of one.
#[derive(Debug, Serialize)]
struct Document {
    slice: u64,
    row: u64,
    /// The place in the input, as `FILE:LINE`.
    source: String,
    /// Pass over the input, from 0.
    pass: u64,
    /// Tokens of the document before these.
    skip: u64,
    tokens: u64,
}

/// Returns the documents of `entry`, then those of the other steps with the same provenance object.
pub(super) async fn read(log: &mut Log, entry: &StepEntry) -> Result<Vec<StepDocuments>, CliError> {
    let Some(key) = &entry.tgb.provenance else {
        let (step, root) = (entry.step, log.store().root());
        return Err(CliError::Absent(format!(
            "step {step} of {root} has no source documents: its producer stores no provenance (packing.provenance)"
        )));
    };
    let object = Object::read(log, entry, key).await?;
    let Some(own) = object.of(entry) else {
        let text = format!("{key} has no entry for batch {}", entry.seq);
        return Err(CliError::Unsound(text));
    };
    let (mut found, mut left) = (vec![own], DOCUMENTS_MAX);
    for direction in [1, -1] {
        for distance in 1..=STEPS_MAX {
            let at = entry
                .step
                .checked_add_signed(direction * distance.cast_signed());
            let Some(other) = located(log, at).await? else {
                break;
            };
            if other.tgb.provenance.as_ref() != Some(key) {
                // The next object of the same producer: this one has no further steps there.
                if other.producer == entry.producer {
                    break;
                }
                continue;
            }
            let Some(one) = object.of(&other).filter(|one| one.documents.len() <= left) else {
                break;
            };
            left -= one.documents.len();
            found.push(one);
        }
    }
    Ok(found)
}

async fn located(log: &mut Log, step: Option<Step>) -> Result<Option<Arc<StepEntry>>, CliError> {
    let Some(step) = step else {
        return Ok(None);
    };
    Ok(match log.locate(step).await? {
        Located::At(entry) => Some(entry),
        _ => None,
    })
}

/// A provenance object, and what its pieces refer to.
struct Object {
    provenance: Provenance,
    names: Names,
    manifest: Manifest,
}

impl Object {
    async fn read(log: &mut Log, entry: &StepEntry, key: &str) -> Result<Self, CliError> {
        Ok(Self {
            provenance: sources::provenance(log.store().as_ref(), key).await?,
            names: sources::names(log, &entry.producer).await?,
            manifest: log.manifest().clone(),
        })
    }

    fn of(&self, entry: &StepEntry) -> Option<StepDocuments> {
        let sources = self.provenance.get(entry.seq)?;
        Some(StepDocuments {
            step: entry.step,
            documents: self.documents(sources, entry),
        })
    }

    fn documents(&self, sources: &Sources, entry: &StepEntry) -> Vec<Document> {
        let (rows, seq_len) = self.manifest.shape_at(&entry.producer, entry.seq);
        let (rows, slices) = (
            u64::from(rows).max(1),
            u64::from(self.manifest.stream().slices),
        );
        let placed = sources.placed(seq_len.into(), slices * rows);
        let document = |(row, _, piece): (u64, u64, Piece)| Document {
            slice: row / rows,
            row: row % rows,
            source: sources::place(&piece, &self.names),
            pass: piece.pass,
            skip: piece.skip,
            tokens: piece.items,
        };
        placed.into_iter().map(document).collect()
    }
}

impl StepDocuments {
    pub(super) fn text(&self, style: Style) -> String {
        let row = |d: &Document| {
            let source = printable(&d.source);
            cells![d.slice, d.row, d.tokens, d.skip, d.pass + 1, source]
        };
        let header = ["SLICE", "ROW", "TOKENS", "SKIPPED", "PASS", "DOCUMENT"];
        table(style, &header, self.documents.iter().map(row))
    }
}
