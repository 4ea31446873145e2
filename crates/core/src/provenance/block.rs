//! A TGB's block as it grows. A large TGB is made slice by slice, and its sources are kept in their stored
//! form, some bytes per document.

use super::varint::{put, zigzag};
use super::{ELSEWHERE, FLAG_BITS, Form, NEW_ROW, Piece, SKIPS, Sources};

/// The growing block of one TGB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    form: Form,
    pub(super) out: Vec<u8>,
    /// The last piece that is in `out`.
    last: Option<Piece>,
    /// In a sequence, the piece that the next slice may continue.
    open: Option<Piece>,
}

impl Block {
    /// Returns a block without pieces.
    pub fn new(form: Form) -> Self {
        let mut out = Vec::with_capacity(64);
        out.push(u8::from(form == Form::Rows));
        Self {
            form,
            out,
            last: None,
            open: None,
        }
    }

    /// Adds the sources of the next slice, so that the block equals that of all slices at once. In a
    /// sequence a slice begins with the last token of the one before.
    pub fn slice(&mut self, sources: &Sources, first: bool) {
        if self.form == Form::Rows {
            sources.pieces.iter().for_each(|piece| self.put(piece));
            return;
        }
        for (n, piece) in sources.pieces.iter().enumerate() {
            let mut piece = *piece;
            if n == 0 && !first {
                (piece.skip, piece.items) = (piece.skip + 1, piece.items.saturating_sub(1));
            }
            let goes_on = |open: &&mut Piece| {
                let place = |p: &Piece| (p.pass, p.file, p.unit);
                n == 0 && place(open) == place(&piece) && open.skip + open.items == piece.skip
            };
            if let Some(open) = self.open.as_mut().filter(goes_on) {
                open.items += piece.items;
            } else if piece.items > 0
                && let Some(before) = self.open.replace(piece)
            {
                self.put(&before);
            }
        }
    }

    /// Returns the encoded block.
    pub fn finish(mut self) -> Vec<u8> {
        if let Some(open) = self.open.take() {
            self.put(&open);
        }
        self.out
    }

    pub(super) fn put(&mut self, piece: &Piece) {
        let out = &mut self.out;
        let last = self.last.as_ref();
        let near = last.filter(|l| (l.pass, l.file) == (piece.pass, piece.file));
        // A step that leaves no room for the flags is rare: the unit is written in full.
        let step = near
            .and_then(|l| zigzag(l.unit, piece.unit))
            .filter(|step| step >> (u64::BITS - FLAG_BITS) == 0);
        let mut head = step.map_or(ELSEWHERE, |step| step << FLAG_BITS);
        head |= if piece.skip > 0 { SKIPS } else { 0 };
        head |= if piece.new_row { NEW_ROW } else { 0 };
        put(out, head);
        if step.is_none() {
            put(out, piece.pass);
            put(out, piece.file.into());
            put(out, piece.unit);
        }
        if piece.skip > 0 {
            put(out, piece.skip);
        }
        put(out, piece.items);
        self.last = Some(*piece);
    }
}
