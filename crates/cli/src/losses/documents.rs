//! Rows and documents with their input files: losses are joined with the provenance of their steps, in the order in
//! which documents lie in the rows of a coordinate.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::sources::{self, Names};
use batchweave_core::ids::{ProducerName, Step};
use batchweave_core::manifest::StepEntry;
use batchweave_core::provenance::{Piece, Provenance};
use batchweave_core::values::DetailOf;
use batchweave_log::{Located, Log};

use super::By;
use super::by::Found;
use super::table::DetailLoss;
use crate::show::decode;

/// Steps, and provenance objects, that are kept for the next loss.
const KEPT: usize = 64;

/// Losses with their documents.
pub(super) struct Joined {
    pub(super) rows: Vec<DetailLoss>,
    /// Losses whose documents are not known: without provenance, reclaimed, or of other numbers than the rows have.
    pub(super) unjoined: u64,
}

/// Joins losses in their order; of documents at most `top`.
pub(super) async fn join(
    log: &mut Log,
    found: Vec<Found>,
    by: By,
    top: Option<u64>,
) -> Result<Joined, CliError> {
    let mut steps = Steps::default();
    let mut joined = Joined {
        rows: Vec::new(),
        unjoined: 0,
    };
    for one in found {
        let placed = steps.placed(log, one.step).await?;
        match by {
            By::Document => joined.add_documents(&one, placed.as_deref()),
            _ => joined.add_row(&one, placed.as_deref()),
        }
        if top.is_some_and(|top| joined.rows.len() as u64 >= top) {
            break;
        }
    }
    if let Some(top) = top {
        joined
            .rows
            .truncate(usize::try_from(top).unwrap_or(usize::MAX));
    }
    Ok(joined)
}

/// The documents of a step's rows.
struct Placed {
    /// Rows of a slice.
    rows: u64,
    /// Row of the step and piece, in order.
    pieces: Vec<(u64, Piece)>,
    names: Arc<Names>,
}

impl Placed {
    /// Returns the pieces of some rows, in order.
    fn within(&self, rows: std::ops::Range<u64>) -> &[(u64, Piece)] {
        let at = |row| self.pieces.partition_point(|(r, _)| *r < row);
        &self.pieces[at(rows.start)..at(rows.end)]
    }
}

impl Joined {
    fn add_row(&mut self, one: &Found, placed: Option<&Placed>) {
        let rows = u64::from(one.count / one.slices.max(1)).max(1);
        let index = u64::from(one.index);
        let first = u64::from(one.first_slice) * rows + index;
        let placed = placed.filter(|placed| placed.rows == rows);
        let own = placed.map_or(&[][..], |placed| placed.within(first..first + 1));
        self.unjoined += u64::from(own.is_empty());
        let name =
            |(_, piece): &(u64, Piece)| placed.map(|placed| sources::place(piece, &placed.names));
        self.rows.push(DetailLoss {
            step: one.step,
            slice: one.first_slice + (index / rows) as u32,
            row: index % rows,
            loss: one.loss,
            tokens: one.tokens,
            documents: own.iter().filter_map(name).collect(),
            first_token: None,
            of_row: false,
            index: 0,
            text: None,
        });
    }

    fn add_documents(&mut self, one: &Found, placed: Option<&Placed>) {
        let Some(placed) = placed else {
            self.unjoined += 1;
            return;
        };
        let first = u64::from(one.first_slice) * placed.rows;
        let all = first..first + u64::from(one.slices) * placed.rows;
        let index = u64::from(one.index);
        let (own, of_row) = match one.of {
            DetailOf::Row if u64::from(one.count) == all.end - all.start => {
                (placed.within(first + index..first + index + 1), true)
            }
            DetailOf::Document => {
                let own = placed.within(all);
                let fits = own.len() == one.count as usize;
                let own = own.get(one.index as usize..=one.index as usize);
                (own.filter(|_| fits).unwrap_or_default(), false)
            }
            DetailOf::None | DetailOf::Row => (&[][..], true),
        };
        self.unjoined += u64::from(own.is_empty());
        for (row, piece) in own {
            let before = placed.within(*row..*row + 1).iter();
            self.rows.push(DetailLoss {
                step: one.step,
                slice: (row / placed.rows) as u32,
                row: row % placed.rows,
                loss: one.loss,
                tokens: if of_row {
                    piece.items as f64
                } else {
                    one.tokens
                },
                documents: vec![sources::place(piece, &placed.names)],
                first_token: Some(piece.skip),
                of_row,
                index: before.take_while(|(_, other)| other != piece).count(),
                text: None,
            });
        }
    }
}

/// A bounded memory of steps that were read.
#[derive(Default)]
struct Steps {
    placed: BTreeMap<Step, Option<Arc<Placed>>>,
    provenance: BTreeMap<String, Arc<Provenance>>,
    names: BTreeMap<ProducerName, Arc<Names>>,
}

impl Steps {
    async fn placed(&mut self, log: &mut Log, step: Step) -> Result<Option<Arc<Placed>>, CliError> {
        if let Some(known) = self.placed.get(&step) {
            return Ok(known.clone());
        }
        let placed = self.read(log, step).await?.map(Arc::new);
        if self.placed.len() >= KEPT {
            self.placed.clear();
        }
        self.placed.insert(step, placed.clone());
        Ok(placed)
    }

    /// Returns the documents of a step; `None` if they are not stored, or reclaimed.
    async fn read(&mut self, log: &mut Log, step: Step) -> Result<Option<Placed>, CliError> {
        let Some(entry) = entry(log, step).await? else {
            return Ok(None);
        };
        let Some(key) = &entry.tgb.provenance else {
            return Ok(None);
        };
        if !self.provenance.contains_key(key) {
            let read = sources::provenance(log.store().as_ref(), key).await?;
            if self.provenance.len() >= KEPT {
                self.provenance.clear();
            }
            self.provenance.insert(key.clone(), Arc::new(read));
        }
        if !self.names.contains_key(&entry.producer) {
            let names = sources::names(log, &entry.producer).await?;
            self.names.insert(entry.producer.clone(), Arc::new(names));
        }
        let manifest = log.manifest();
        let (rows, seq_len) = manifest.shape_at(&entry.producer, entry.seq);
        let rows = u64::from(rows).max(1);
        let all = u64::from(manifest.stream().slices) * rows;
        let sources = self.provenance.get(key).and_then(|p| p.get(entry.seq));
        let names = self.names.get(&entry.producer);
        Ok(sources.zip(names).map(|(sources, names)| {
            let placed = sources.placed(seq_len.into(), all).into_iter();
            Placed {
                rows,
                pieces: placed.map(|(row, _, piece)| (row, piece)).collect(),
                names: Arc::clone(names),
            }
        }))
    }
}

/// Returns the entry of a step; `None` below the watermark.
async fn entry(log: &mut Log, step: Step) -> Result<Option<Arc<StepEntry>>, CliError> {
    Ok(match log.locate(step).await? {
        Located::At(entry) => Some(entry),
        _ => None,
    })
}

/// Adds the text of rows and documents, as far as their data is still there.
pub(super) async fn decode(
    log: &mut Log,
    rows: &mut [DetailLoss],
    tokenizer: Option<&Path>,
) -> Result<(), CliError> {
    for one in rows {
        let Some(entry) = entry(log, one.step).await? else {
            continue;
        };
        let frames = log
            .read_frames(&entry, one.slice..one.slice + 1, true)
            .await?;
        let decoded = decode::rows(log, &entry, &frames, tokenizer).await?;
        let row = decoded
            .iter()
            .find(|decoded| decoded.is(one.slice, one.row));
        let of_document = one.first_token.map(|_| one.index);
        one.text = row.map(|row| row.words(of_document));
    }
    Ok(())
}
