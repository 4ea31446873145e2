//! Byte-pair encoding as `bpe::Model::SampleEncode` of the library does it: of all pairs of neighbours that make a
//! piece, the one of the highest score is merged, the leftmost of equals.
//!
//! A place between two characters that no piece has side by side is never merged over. So a text is done in runs
//! between such places, which gives the same pieces as the whole at once, with far smaller queues.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use super::model::{Model, Use};
use super::neighbours::Neighbours;
use super::normalizer::{Normalizer, character_length};
use super::output::Output;
use super::trie::Trie;

const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Bpe {
    trie: Trie,
    scores: Vec<f32>,
    unknown: u32,
    /// Whether pieces are unused, by id; `None` if none is.
    unused: Option<Vec<bool>>,
    neighbours: Neighbours,
}

/// A character, or what it has been merged to; without length once it is part of another one.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: u32,
    length: u32,
    previous: u32,
    next: u32,
    /// A user-defined piece, which is never merged.
    frozen: bool,
}

/// A merge that is possible, unless one of the two symbols has changed.
#[derive(Debug, PartialEq)]
struct Pair {
    score: f32,
    left: u32,
    right: u32,
    length: u32,
}

impl Symbol {
    fn range(&self) -> Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }
}

impl Eq for Pair {}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The memory of a run, kept for the next one.
#[derive(Default)]
struct Run<'a> {
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Pair>,
    /// The last two parts that made an unused piece, by its text.
    parts: HashMap<&'a [u8], (&'a [u8], &'a [u8])>,
}

impl Bpe {
    pub(super) fn new(model: &Model) -> Self {
        let is_unused = |piece: &super::model::Piece| piece.usage == Use::Unused;
        let of_text = || {
            let all = (0_u32..).zip(&model.pieces);
            all.filter(|(_, p)| matches!(p.usage, Use::Normal | Use::UserDefined | Use::Unused))
                .map(|(id, piece)| (piece.text.as_str(), id))
        };
        let unused = model.pieces.iter().any(is_unused);
        Self {
            trie: Trie::new(of_text().map(|(text, id)| (text.as_bytes(), id))),
            scores: model.pieces.iter().map(|piece| piece.score).collect(),
            unknown: model.unknown,
            unused: unused.then(|| model.pieces.iter().map(is_unused).collect()),
            neighbours: Neighbours::new(of_text().map(|(text, _)| text)),
        }
    }

    pub(super) fn encode(&self, normalizer: &Normalizer, text: &[u8], output: &mut Output<'_>) {
        let mut run = Run::default();
        let mut at = 0;
        while at < text.len() {
            let whole = normalizer.user_defined(&text[at..]);
            let length = whole
                .unwrap_or_else(|| character_length(text[at]))
                .min(text.len() - at);
            let symbol = Symbol {
                start: at as u32,
                length: length as u32,
                previous: NONE,
                next: NONE,
                frozen: whole.is_some(),
            };
            if let Some(last) = run.symbols.last()
                && self.may_part(text, last, &symbol)
            {
                self.finish(text, &mut run, output);
            }
            run.symbols.push(symbol);
            at += length;
        }
        self.finish(text, &mut run, output);
    }

    /// Returns whether the two can be in different runs. An unused piece is divided as its last merge was, which
    /// may be anywhere in the text, so with such pieces the text is one run.
    fn may_part(&self, text: &[u8], left: &Symbol, right: &Symbol) -> bool {
        self.unused.is_none()
            && (left.frozen
                || right.frozen
                || !self
                    .neighbours
                    .may_have(&text[left.range()], &text[right.range()]))
    }

    /// Merges a run and gives out its pieces.
    fn finish<'a>(&self, text: &'a [u8], run: &mut Run<'a>, output: &mut Output<'_>) {
        let count = run.symbols.len();
        for at in 0..count {
            run.symbols[at].previous = (at as u32).checked_sub(1).unwrap_or(NONE);
            run.symbols[at].next = if at + 1 < count { at as u32 + 1 } else { NONE };
        }
        for left in 1..count {
            self.offer(text, run, left as u32 - 1, left as u32);
        }
        while let Some(pair) = run.pairs.pop() {
            let left = pair.left as usize;
            let right = pair.right as usize;
            let first = run.symbols[left];
            let second = run.symbols[right];
            let is_gone = first.length == 0 || second.length == 0;
            if is_gone || first.length + second.length != pair.length {
                continue;
            }
            run.symbols[left].length = pair.length;
            run.symbols[left].next = second.next;
            run.symbols[right].length = 0;
            if second.next != NONE {
                run.symbols[second.next as usize].previous = pair.left;
            }
            self.offer(text, run, first.previous, pair.left);
            self.offer(text, run, pair.left, second.next);
        }
        for symbol in run.symbols.iter().filter(|symbol| symbol.length > 0) {
            let piece = &text[symbol.range()];
            self.give_out(piece, &run.parts, output);
        }
        run.symbols.clear();
    }

    /// Queues the merge of two neighbours, if it makes a piece.
    fn offer<'a>(&self, text: &'a [u8], run: &mut Run<'a>, left: u32, right: u32) {
        if left == NONE || right == NONE {
            return;
        }
        let first = run.symbols[left as usize];
        let second = run.symbols[right as usize];
        if first.frozen || second.frozen {
            return;
        }
        let length = first.length + second.length;
        let piece = &text[Symbol { length, ..first }.range()];
        let Some(id) = self.trie.get(piece) else {
            return;
        };
        run.pairs.push(Pair {
            score: self.scores[id as usize],
            left,
            right,
            length,
        });
        if self.is_unused(id) {
            run.parts
                .insert(piece, piece.split_at(first.length as usize));
        }
    }

    fn is_unused(&self, id: u32) -> bool {
        self.unused
            .as_ref()
            .and_then(|unused| unused.get(id as usize).copied())
            .unwrap_or(false)
    }

    /// Gives out a piece; an unused one as its parts, which are shorter.
    fn give_out<'a>(
        &self,
        piece: &'a [u8],
        parts: &HashMap<&'a [u8], (&'a [u8], &'a [u8])>,
        output: &mut Output<'_>,
    ) {
        let id = self.trie.get(piece).unwrap_or(self.unknown);
        if !self.is_unused(id) {
            output.push(piece, id);
            return;
        }
        let mut open = vec![piece];
        while let Some(piece) = open.pop() {
            let id = self.trie.get(piece).unwrap_or(self.unknown);
            match parts.get(piece) {
                _ if !self.is_unused(id) => output.push(piece, id),
                Some((left, right)) => open.extend([*right, *left]),
                None => output.push(piece, self.unknown),
            }
        }
    }
}
