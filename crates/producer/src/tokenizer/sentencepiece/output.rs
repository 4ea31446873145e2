//! The tokens of the pieces that a text is divided into, as `PopulateSentencePieceText` of the library makes them.

use super::model::Model;

/// Collects tokens: unknown pieces become their bytes, or one token per run of them.
pub(super) struct Output<'a> {
    unknown: u32,
    bytes: Option<&'a [u32]>,
    after_unknown: bool,
    tokens: Vec<u32>,
}

impl<'a> Output<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        Self {
            unknown: model.unknown,
            bytes: model.bytes.as_deref(),
            after_unknown: false,
            tokens: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, piece: &[u8], id: u32) {
        let is_unknown = id == self.unknown;
        match self.bytes {
            Some(bytes) if is_unknown => {
                let ids = piece.iter().map(|byte| bytes[usize::from(*byte)]);
                self.tokens.extend(ids);
            }
            _ if is_unknown && self.after_unknown => {}
            _ => self.tokens.push(id),
        }
        self.after_unknown = is_unknown;
    }

    pub(super) fn into_tokens(self) -> Vec<u32> {
        self.tokens
    }
}
