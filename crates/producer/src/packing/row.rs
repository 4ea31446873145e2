//! Batches taken apart into rows that stand alone, and batches made of such rows.

use batchweave_core::provenance::{Form, Piece, Sources};

use super::{BatchContent, PackedBatch, Restart, Rows, Segment, Shape};

/// A row with all that belongs to it.
#[derive(Debug, Default)]
pub(super) struct Row {
    tokens: Vec<u32>,
    learned: Vec<bool>,
    segments: Vec<Segment>,
    pieces: Vec<Piece>,
    /// Its tokens of the input that no row before it had.
    own: u64,
}

/// Returns the rows of a full batch of this shape.
pub(super) fn rows_of(batch: PackedBatch, shape: Shape) -> Vec<Row> {
    let BatchContent::Rows(rows) = batch.content else {
        return Vec::new();
    };
    let is_sequence = batch.sources.form == Form::Sequence;
    let pieces = match batch.sources.form {
        Form::Sequence => cut(&batch.sources.pieces, shape),
        Form::Rows => by_row(batch.sources.pieces),
    };
    let mut segments = rows.segments.into_iter().peekable();
    let mut all = Vec::with_capacity(shape.rows());
    for (number, pieces) in pieces.into_iter().enumerate() {
        let at = number * rows.stride..number * rows.stride + shape.width();
        let tokens = rows.tokens.get(at.clone()).unwrap_or_default().to_vec();
        let of_row = |segment: &Segment| segment.row == number;
        let segments: Vec<Segment> = std::iter::from_fn(|| segments.next_if(of_row)).collect();
        // Without marks all tokens of a sequence are learned.
        let learned = match rows.learned.get(at) {
            Some(learned) => learned.to_vec(),
            None => vec![true; tokens.len()],
        };
        let own = if is_sequence {
            u64::from(shape.seq_len)
        } else {
            let new = |segment: &Segment| (segment.tokens - usize::from(segment.goes_on)) as u64;
            segments.iter().map(new).sum()
        };
        all.push(Row {
            tokens,
            learned,
            segments,
            pieces,
            own,
        });
    }
    all
}

/// Returns the batch of these rows, behind which packing continues at `next`.
pub(super) fn join(rows: impl Iterator<Item = Row>, shape: Shape, next: Restart) -> PackedBatch {
    let mut content = Rows {
        stride: shape.width(),
        ..Rows::default()
    };
    let mut sources = Sources {
        form: Form::Rows,
        pieces: Vec::new(),
    };
    let mut own = 0;
    for (number, row) in rows.enumerate() {
        content.tokens.extend(row.tokens);
        content.learned.extend(row.learned);
        let segments = row.segments.into_iter();
        content.segments.extend(segments.map(|segment| Segment {
            row: number,
            ..segment
        }));
        sources.pieces.extend(row.pieces);
        own += row.own;
    }
    PackedBatch {
        content: BatchContent::Rows(content),
        own,
        next,
        sources,
    }
}

/// Returns the pieces of each row of a sequence. A row begins with the last token of the one before.
fn cut(pieces: &[Piece], shape: Shape) -> Vec<Vec<Piece>> {
    let (stride, width) = (u64::from(shape.seq_len), shape.width() as u64);
    let mut rows = vec![Vec::new(); shape.rows()];
    let mut begins = 0;
    for piece in pieces {
        let ends = begins + piece.items;
        // The first row that holds more of the piece than the token which it shares with the row before.
        let first = begins.saturating_sub(1) / stride;
        for row in first..(ends.div_ceil(stride)).min(rows.len() as u64) {
            let from = begins.max(row * stride);
            let to = ends.min(row * stride + width);
            let Some(of_row) = rows.get_mut(row as usize).filter(|_| to > from) else {
                continue;
            };
            of_row.push(Piece {
                skip: piece.skip + (from - begins),
                items: to - from,
                new_row: of_row.is_empty(),
                ..*piece
            });
        }
        begins = ends;
    }
    rows
}

/// Returns the pieces of each row.
fn by_row(pieces: Vec<Piece>) -> Vec<Vec<Piece>> {
    let mut rows: Vec<Vec<Piece>> = Vec::new();
    for piece in pieces {
        match rows.last_mut() {
            Some(row) if !piece.new_row => row.push(piece),
            _ => rows.push(vec![piece]),
        }
    }
    rows
}
