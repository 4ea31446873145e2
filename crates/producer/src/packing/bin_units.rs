//! From an arrangement to the bins of some slices, with their provenance.

use std::ops::Range;

use batchweave_core::balance::BalancedBatch;
use batchweave_core::provenance::{Form, Piece as Source, Sources};

use super::bin_piece::{BinPiece, Part};
use super::bins::{BinEnd, Bins};
use super::{BatchContent, PackedBatch, Point, Restart, Segment, piece as source};

/// Returns some slices of a batch. `loss_tokens` counts the learned tokens of these slices.
pub(super) fn unit(
    batch: &BalancedBatch,
    slices: Range<usize>,
    taken: &mut [Option<BinPiece>],
    next: &Restart,
) -> PackedBatch {
    let mut bins = Bins {
        cost: batch.cost,
        ..Bins::default()
    };
    let mut pieces = Vec::new();
    let mut own = 0;
    for (slice, micro_batch) in
        slices.flat_map(|slice| (0..batch.micro_batches()).map(move |m| (slice, m)))
    {
        let start = bins.tokens.len();
        let mut cost = 0;
        let before = pieces.len();
        let documents = batch.bin(slice, micro_batch).iter();
        for piece in documents.filter_map(|index| taken.get_mut(*index as usize)?.take()) {
            cost += piece.size.cost;
            bins.late += u64::from(piece.size.carried);
            let at = piece.at;
            for part in piece.parts() {
                own += part.tokens.len() as u64 - u64::from(part.goes_on);
                pieces.push(source(at, part.tokens.len() as u64, false));
                put(&mut bins, start, at, part);
            }
        }
        begin_row(&mut pieces, before);
        bins.ends.push(BinEnd {
            token: bins.tokens.len(),
            segment: bins.segments.len(),
            cost,
        });
    }
    bins.loss_tokens = bins.learned.iter().filter(|learned| **learned).count() as u64;
    PackedBatch {
        content: BatchContent::Bins(bins),
        own,
        next: next.clone(),
        sources: Sources {
            form: Form::Rows,
            pieces,
        },
    }
}

/// Marks the first piece of a bin; an empty bin has a piece without tokens.
fn begin_row(pieces: &mut Vec<Source>, first: usize) {
    if pieces.len() == first {
        let place = pieces.last().copied().unwrap_or_default();
        pieces.push(Source {
            skip: 0,
            items: 0,
            ..place
        });
    }
    if let Some(piece) = pieces.get_mut(first) {
        piece.new_row = true;
    }
}

/// Appends a document to the bin that begins with token `start`.
fn put(bins: &mut Bins, start: usize, at: Point, part: Part) {
    bins.segments.push(Segment {
        row: bins.ends.len(),
        start: bins.tokens.len() - start,
        tokens: part.tokens.len(),
        goes_on: part.goes_on,
        document: (at.file, at.unit),
        columns: part.columns,
        arrays: part.arrays,
    });
    bins.tokens.extend(part.tokens);
    bins.learned.extend(part.learned);
}
