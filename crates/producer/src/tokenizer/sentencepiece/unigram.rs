//! The most probable division of a text, as `unigram::Model::EncodeOptimized` of the library finds it. Sums of scores
//! are rounded to 32 bits as there, from the text's beginning on: other rounding would choose another of two divisions
//! that are nearly equal.
//!
//! Where no piece crosses a place, every division has a border there. So the text is done in windows that end at such
//! places, with the score so far carried over: memory depends on the distance of those places, not on the text.

use super::model::{Model, Use};
use super::normalizer::character_length;
use super::output::Output;
use super::trie::{ROOT, Trie};

/// Bytes after which a window ends at the next place that no piece crosses.
const WINDOW: usize = 1024;
const UNKNOWN_PENALTY: f32 = 10.0;
/// A larger score, of either sign, becomes zero, and all after it become less by as much.
const SCORE_MAX: f32 = 100_000.0;

#[derive(Debug)]
pub(super) struct Unigram {
    trie: Trie,
    /// Scores by id. User-defined pieces have more than 0, so they are preferred to all others.
    scores: Vec<f32>,
    unknown: u32,
    unknown_score: f32,
}

/// The best division of the window up to a place: its score and its last piece.
#[derive(Debug, Clone, Copy)]
struct Best {
    score: f32,
    id: u32,
    start: u32,
}

const OPEN: Best = Best {
    score: 0.0,
    id: 0,
    start: u32::MAX,
};

impl Unigram {
    pub(super) fn new(model: &Model) -> Self {
        let normal = || model.pieces.iter().filter(|p| p.usage == Use::Normal);
        let least = normal().map(|p| p.score).fold(f32::MAX, f32::min);
        let usable = (0_u32..)
            .zip(&model.pieces)
            .filter(|(_, piece)| matches!(piece.usage, Use::Normal | Use::UserDefined))
            .map(|(id, piece)| (piece.text.as_bytes(), id));
        let score = |piece: &super::model::Piece| match piece.usage {
            Use::UserDefined => (0.1 * (piece.text.len() as f64 - 1.0)) as f32,
            _ => piece.score,
        };
        Self {
            trie: Trie::new(usable),
            scores: model.pieces.iter().map(score).collect(),
            unknown: model.unknown,
            unknown_score: least - UNKNOWN_PENALTY,
        }
    }

    pub(super) fn encode(&self, text: &[u8], output: &mut Output<'_>) {
        let mut best: Vec<Best> = Vec::with_capacity(2 * WINDOW);
        best.push(OPEN);
        let mut divided = Vec::new();
        // The window's begin, the current place, and the farthest end of any piece so far.
        let mut begin = 0;
        let mut at = 0;
        let mut reach = 0;
        while at < text.len() {
            if at == reach && at - begin >= WINDOW {
                let score = best[at - begin].score;
                divide(&text[begin..at], &best, &mut divided, output);
                best.clear();
                best.push(Best { score, ..OPEN });
                begin = at;
            }
            if best[at - begin].score.abs() > SCORE_MAX {
                subtract_first(&mut best[at - begin..]);
            }
            let so_far = best[at - begin].score;
            let length = character_length(text[at]).min(text.len() - at);
            let mut candidate = |end: usize, id: u32, score: f32| {
                reach = reach.max(end);
                let place = end - begin;
                if place >= best.len() {
                    best.resize(place + 1, OPEN);
                }
                let kept = &mut best[place];
                if kept.start == OPEN.start || score > kept.score {
                    *kept = Best {
                        score,
                        id,
                        start: (at - begin) as u32,
                    };
                }
            };
            let mut node = ROOT;
            let mut is_known = false;
            for (end, byte) in (at + 1..).zip(&text[at..]) {
                let Some(next) = self.trie.step(node, *byte) else {
                    break;
                };
                node = next;
                if let Some(id) = self.trie.value(node) {
                    candidate(end, id, self.scores[id as usize] + so_far);
                    is_known |= end - at == length;
                }
            }
            if !is_known {
                candidate(at + length, self.unknown, self.unknown_score + so_far);
            }
            at += length;
        }
        divide(&text[begin..], &best, &mut divided, output);
    }
}

fn subtract_first(best: &mut [Best]) {
    let first = best.first().map_or(0.0, |first| first.score);
    for (at, kept) in best.iter_mut().enumerate() {
        if at == 0 || kept.start != OPEN.start {
            kept.score -= first;
        }
    }
}

/// Gives out the pieces of a window's best division, found from its end.
fn divide(window: &[u8], best: &[Best], divided: &mut Vec<usize>, output: &mut Output<'_>) {
    divided.clear();
    let mut end = window.len();
    while end > 0 {
        divided.push(end);
        end = best[end].start as usize;
    }
    for end in divided.iter().rev() {
        let last = best[*end];
        output.push(&window[last.start as usize..*end], last.id);
    }
}
