//! A model's encoder: normalizing, dividing into pieces, and their tokens.

use super::bpe::Bpe;
use super::model::{Kind, Model, Use};
use super::normalizer::{Normalizer, SPACE, character_length};
use super::output::Output;
use super::trie::Trie;
use super::unigram::Unigram;

/// Bytes of a normalized text at most: indices have 32 bits, and the library counts with 31.
pub(super) const TEXT_MAX: usize = i32::MAX as usize;

#[derive(Debug)]
pub(super) struct Encoder {
    model: Model,
    normalizer: Normalizer,
    division: Division,
}

#[derive(Debug)]
enum Division {
    Unigram(Unigram),
    Bpe(Bpe),
    /// Words, each with the space before it; the trie has the pieces.
    Words(Trie),
    Characters(Trie),
}

impl Encoder {
    pub(super) fn new(model: Model) -> Result<Self, String> {
        let normalizer = Normalizer::new(&model)?;
        let division = match model.kind {
            Kind::Unigram => Division::Unigram(Unigram::new(&model)),
            Kind::Bpe => Division::Bpe(Bpe::new(&model)),
            Kind::Word => Division::Words(pieces_of_text(&model)),
            Kind::Char => Division::Characters(pieces_of_text(&model)),
        };
        Ok(Self {
            model,
            normalizer,
            division,
        })
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the tokens of a text; `None` where it is too long for the indices of the encoder.
    pub(super) fn encode(&self, text: &str) -> Option<Vec<u32>> {
        let text = self.normalizer.normalize(text);
        if text.len() > TEXT_MAX {
            return None;
        }
        let mut output = Output::new(&self.model);
        let known = |trie: &Trie, piece: &[u8]| trie.get(piece).unwrap_or(self.model.unknown);
        match &self.division {
            Division::Unigram(unigram) => unigram.encode(&text, &mut output),
            Division::Bpe(bpe) => bpe.encode(&self.normalizer, &text, &mut output),
            Division::Words(trie) => {
                let mut start = 0;
                while start < text.len() {
                    let word = &text[start..];
                    let end = memchr::memmem::find(&word[1..], SPACE.as_bytes());
                    let word = &word[..end.map_or(word.len(), |end| end + 1)];
                    output.push(word, known(trie, word));
                    start += word.len();
                }
            }
            Division::Characters(trie) => {
                let mut rest = text.as_slice();
                while let Some(first) = rest.first() {
                    let whole = self.normalizer.user_defined(rest);
                    let length = whole.unwrap_or_else(|| character_length(*first));
                    let (piece, after) = rest.split_at(length.min(rest.len()));
                    output.push(piece, known(trie, piece));
                    rest = after;
                }
            }
        }
        Some(output.into_tokens())
    }
}

/// Returns the ids of the pieces that texts are made of; a word that spells another piece is unknown.
fn pieces_of_text(model: &Model) -> Trie {
    let all = (0_u32..).zip(&model.pieces);
    let spelt = all.filter(|(_, p)| matches!(p.usage, Use::Normal | Use::UserDefined));
    Trie::new(spelt.map(|(id, piece)| (piece.text.as_bytes(), id)))
}
