//! Keyed numbers: a key of four words from SHA-256, and draws that are functions of a key and a number. There is no
//! generator with a state, so any draw can be repeated from its key alone.

use sha2::{Digest, Sha256};

/// Begins the bytes of every key; another algorithm gets another number.
const DOMAIN: &[u8] = b"batchweave order 1\n";

/// The purpose of a key: keys of different purposes are unrelated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The order of a source's blocks in a pass.
    Blocks,
    /// The order of the documents of a window.
    Documents,
    /// The order of the batches that are arranged together.
    Batches,
    /// The order of the rows of a window.
    Rows,
    /// The side of a split to which a document belongs.
    Split,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Blocks => b"blocks\n",
            Self::Documents => b"documents\n",
            Self::Batches => b"batches\n",
            Self::Rows => b"rows\n",
            Self::Split => b"split\n",
        }
    }
}

/// Four words that decide an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(pub(super) [u64; 4]);

impl Key {
    /// Returns the key of `purpose` for a name and numbers: the words of the SHA-256 over the domain, the purpose,
    /// the numbers, the name's length and the name, every number as eight bytes, little-endian.
    pub(crate) fn new(purpose: Purpose, name: &str, numbers: &[u64]) -> Self {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update(purpose.label());
        for number in numbers {
            hash.update(number.to_le_bytes());
        }
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(digest.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }

    /// Returns the draw number `n`.
    pub(super) fn draw(self, n: u64) -> u64 {
        let [a, b, ..] = self.0;
        mix(a.wrapping_add(mix(b.wrapping_add(n))))
    }

    /// Returns the draw number `n` as a number below `bound`, which must not be 0.
    pub(super) fn below(self, n: u64, bound: u64) -> u64 {
        // The bias is at most bound / 2^64.
        ((u128::from(self.draw(n)) * u128::from(bound)) >> 64) as u64
    }

    /// Puts `items` in the order of this key: Fisher-Yates, from the end.
    pub(super) fn shuffle<T>(self, items: &mut [T]) {
        for n in (1..items.len()).rev() {
            let other = self.below(n as u64, n as u64 + 1);
            items.swap(n, other as usize);
        }
    }
}

/// Mixes the bits of a word: the finalizer of `SplitMix64`, a bijection.
pub(super) fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_key_counts() {
        let keys = [
            Key::new(Purpose::Blocks, "web", &[1, 2]),
            Key::new(Purpose::Documents, "web", &[1, 2]),
            Key::new(Purpose::Blocks, "web", &[2, 1]),
            Key::new(Purpose::Blocks, "we", &[1, 2]),
            Key::new(Purpose::Blocks, "web", &[1]),
        ];
        for (n, key) in keys.iter().enumerate() {
            assert!(!keys[..n].contains(key), "{n}");
        }
    }

    /// Another implementation of docs/order.md compares its own with these.
    #[test]
    fn keys_and_draws_match_the_page() {
        let key = Key::new(Purpose::Blocks, "web", &[7, 0]);
        assert_eq!(key.0[0], FIRST_WORD);
        assert_eq!(key.draw(0), FIRST_DRAW);
        assert!((0..1000).all(|n| key.below(n, 3) < 3));
    }

    const FIRST_WORD: u64 = 0xc4eb_37a2_a29f_c0c6;
    const FIRST_DRAW: u64 = 0x03e7_3f61_8239_a15b;
}
