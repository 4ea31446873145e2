//! The pairs of characters that some piece has side by side, as a filter of bits: it may say yes of a pair that no
//! piece has, and never no of one that a piece has.

/// Bits of an index into the filter: 128 KiB in all, so that it stays in the cache.
const BITS: u32 = 20;

#[derive(Debug)]
pub(super) struct Neighbours {
    words: Vec<u64>,
}

impl Neighbours {
    pub(super) fn new<'a>(pieces: impl Iterator<Item = &'a str>) -> Self {
        let mut made = Self {
            words: vec![0; 1 << (BITS - 6)],
        };
        for piece in pieces {
            let mut characters = piece.char_indices().map(|(at, c)| (at, at + c.len_utf8()));
            let mut last = characters.next();
            for next in characters {
                if let Some((start, end)) = last.replace(next) {
                    let text = piece.as_bytes();
                    let (word, bit) = place(&text[start..end], &text[next.0..next.1]);
                    made.words[word] |= bit;
                }
            }
        }
        made
    }

    /// Returns whether a piece may have the two characters side by side.
    #[inline]
    pub(super) fn may_have(&self, left: &[u8], right: &[u8]) -> bool {
        let (word, bit) = place(left, right);
        self.words[word] & bit != 0
    }
}

/// Returns the word and the bit of a pair.
#[inline]
fn place(left: &[u8], right: &[u8]) -> (usize, u64) {
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let pair = number(left) << 32 | number(right);
    let hash = pair.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS);
    ((hash >> 6) as usize, 1 << (hash & 63))
}
