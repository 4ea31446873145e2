//! The pieces of documents that go into bins.

use batchweave_core::balance::{self, CostError};
use bytes::Bytes;

use super::balancing::Balancing;
use super::{Answer, ColumnValues, Content, Document, HandedPiece, Point, TokenRange};

/// A document or a piece of one, or both answers of a pair: it goes into one bin.
#[derive(Debug)]
pub(super) struct BinPiece {
    /// The document, and the token in it where the piece begins.
    pub(super) at: Point,
    /// Its number, counted from the restart.
    pub(super) number: u64,
    pub(super) size: balance::Document,
    /// Whether it was cut, as [`TokenRange::is_cut`] says.
    pub(super) is_cut: bool,
    /// Bytes of its tokens and arrays in memory.
    pub(super) bytes: u64,
    first: Part,
    second: Option<Box<Part>>,
}

/// Tokens of one document.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) tokens: Vec<u32>,
    pub(super) learned: Vec<bool>,
    /// It repeats the last token of the piece before it, which is of the same document.
    pub(super) goes_on: bool,
    pub(super) columns: Option<ColumnValues>,
    pub(super) arrays: Vec<Bytes>,
}

impl Part {
    /// Returns a part of these tokens; all are learned without marks, but never the first one: no token before it in its
    /// document could predict it.
    fn new(tokens: Vec<u32>, mut learned: Vec<bool>) -> Self {
        learned.resize(tokens.len(), true);
        if let Some(first) = learned.first_mut() {
            *first = false;
        }
        Self {
            tokens,
            learned,
            ..Self::default()
        }
    }

    fn own(&self) -> u64 {
        self.tokens.len() as u64 - u64::from(self.goes_on)
    }
}

impl BinPiece {
    fn new(
        balancing: &Balancing,
        at: Point,
        first: Part,
        second: Option<Box<Part>>,
    ) -> Result<Self, CostError> {
        let mut size = balance::Document::default();
        let mut bytes = 0;
        for part in std::iter::once(&first).chain(second.as_deref()) {
            let tokens = u32::try_from(part.tokens.len()).unwrap_or(u32::MAX);
            let items = part.arrays.iter().zip(&balancing.item_bytes);
            let items: Vec<u32> = items
                .map(|(array, item)| array.len() as u64 / (*item).max(1))
                .map(|items| u32::try_from(items).unwrap_or(u32::MAX))
                .collect();
            let cost = balancing.cost.cost(tokens, &items)?;
            size.tokens = size.tokens.saturating_add(tokens);
            size.cost = size.cost.saturating_add(cost);
            let arrays = part.arrays.iter().map(Bytes::len).sum::<usize>();
            bytes += 5 * u64::from(tokens) + arrays as u64;
        }
        Ok(Self {
            at,
            number: 0,
            size,
            is_cut: false,
            bytes,
            first,
            second,
        })
    }

    /// Returns its documents: two of a pair, else one.
    pub(super) fn parts(self) -> impl Iterator<Item = Part> {
        std::iter::once(self.first).chain(self.second.map(|part| *part))
    }

    /// Returns the number of its tokens that no piece before it has.
    pub(super) fn own(&self) -> u64 {
        self.first.own() + self.second.as_ref().map_or(0, |part| part.own())
    }

    /// Returns the piece as it is handed over; `is_before_given` where a piece behind it was given. Pairs and documents with
    /// arrays are never handed over.
    pub(super) fn unplaced(self, is_before_given: bool) -> HandedPiece {
        HandedPiece {
            at: self.at,
            goes_on: self.first.goes_on,
            tokens: self.first.tokens,
            learned: self.first.learned,
            columns: self.first.columns,
            is_cut: self.is_cut || is_before_given,
        }
    }
}

/// Returns the pieces of a document from `skip` on, where an earlier piece ended.
pub(super) fn divide(
    balancing: &Balancing,
    at: Point,
    skip: usize,
    document: Document,
) -> Result<Vec<BinPiece>, CostError> {
    let columns = document.columns;
    let (tokens, learned) = match document.content {
        Content::Tokens(mut tokens) => {
            tokens.push(balancing.end);
            (tokens, Vec::new())
        }
        Content::Turns(tokens, learned) => (tokens, learned),
        Content::Pair(pair) => {
            let [first, second] = pair.map(|Answer { tokens, learned }| Part {
                columns: columns.clone(),
                ..Part::new(tokens, learned)
            });
            return Ok(vec![BinPiece::new(
                balancing,
                at,
                first,
                Some(Box::new(second)),
            )?]);
        }
        Content::Sample(_) => return Ok(Vec::new()),
    };
    let width = balancing.settings.tokens as usize;
    if skip == 0 && (tokens.len() <= width || !balancing.split) {
        let part = Part {
            columns,
            arrays: document.arrays,
            ..Part::new(tokens, learned)
        };
        return Ok(vec![BinPiece::new(balancing, at, part, None)?]);
    }
    let document = (at, false, columns);
    split(balancing, document, skip, (&tokens, &learned))
}

/// Returns the pieces of tokens that an earlier packer handed over, whose last one before them the first piece repeats.
pub(super) fn divide_range(
    balancing: &Balancing,
    range: TokenRange,
) -> Result<Vec<BinPiece>, CostError> {
    let is_cut = range.is_cut;
    let (range, goes_on) = range.with_before();
    let document = (range.at, goes_on, range.columns);
    let mut pieces = split(balancing, document, 0, (&range.tokens, &range.learned))?;
    for piece in &mut pieces {
        piece.is_cut = is_cut;
    }
    Ok(pieces)
}

/// Divides tokens from `skip` on into pieces that share a token.
fn split(
    balancing: &Balancing,
    (at, goes_on, columns): (Point, bool, Option<ColumnValues>),
    skip: usize,
    (tokens, learned): (&[u32], &[bool]),
) -> Result<Vec<BinPiece>, CostError> {
    let width = balancing.settings.tokens as usize;
    let mut pieces = Vec::new();
    let mut from = skip;
    while from == 0 || from + 1 < tokens.len() {
        let to = (from + width).min(tokens.len());
        let marks = learned.get(from..to).unwrap_or_default();
        let part = Part {
            goes_on: from > 0 || goes_on,
            columns: columns.clone(),
            ..Part::new(tokens[from..to].to_vec(), marks.to_vec())
        };
        let at = Point {
            skip: at.skip + from as u64,
            ..at
        };
        pieces.push(BinPiece::new(balancing, at, part, None)?);
        if to == tokens.len() {
            break;
        }
        // The next piece repeats this one's last token.
        from = to - 1;
    }
    Ok(pieces)
}
