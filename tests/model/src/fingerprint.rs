//! A 64-bit fingerprint of a state. With n states, the probability that two share one, so that a state
//! is skipped, is about n * n / 2^65: 3 in a million for ten million states.

use std::hash::{BuildHasherDefault, Hash, Hasher};

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FOLD: u64 = 0xd6e8_feb8_6659_fd93;

/// Multiplies to 128 bits and folds the halves, word by word.
#[derive(Debug, Clone, Copy)]
struct Mixer(u64);

impl Mixer {
    fn word(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word).wrapping_mul(u128::from(FOLD) | (1 << 64));
        self.0 = ((product >> 64) as u64 ^ product as u64)
            .rotate_left(29)
            .wrapping_add(SEED);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, value: u8) {
        self.word(u64::from(value));
    }
    fn write_u32(&mut self, value: u32) {
        self.word(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.word(value);
    }
    fn write_usize(&mut self, value: usize) {
        self.word(value as u64);
    }
    fn finish(&self) -> u64 {
        let mut x = self.0;
        x ^= x >> 32;
        x = x.wrapping_mul(FOLD);
        x ^= x >> 29;
        x = x.wrapping_mul(SEED);
        x ^ x >> 32
    }
}

/// Returns the fingerprint of a state.
pub fn of(state: &impl Hash) -> u64 {
    let mut mixer = Mixer(SEED);
    state.hash(&mut mixer);
    mixer.finish()
}

/// A hasher for fingerprints, which are hashes already.
#[derive(Debug, Clone, Copy, Default)]
pub struct Through(u64);

impl Hasher for Through {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The hash builder of maps whose keys are fingerprints.
pub type ThroughBuild = BuildHasherDefault<Through>;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn near_states_have_far_fingerprints() {
        let mut seen = HashSet::new();
        let mut low = HashSet::new();
        for a in 0..40_u8 {
            for b in 0..40_u32 {
                for c in 0..40_u8 {
                    let print = of(&(a, b, [c, a, 0]));
                    assert!(seen.insert(print), "{a} {b} {c}");
                    low.insert(print & 0xffff);
                }
            }
        }
        // 64,000 draws out of 65,536 leave about 40,800 distinct ones.
        assert!((40_000..42_000).contains(&low.len()), "{}", low.len());
    }
}
