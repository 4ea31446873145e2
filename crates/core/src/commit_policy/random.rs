//! Jitter from a seed: SplitMix64 (Steele, Lea, Flood 2014).

use std::time::Duration;

#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number that is uniform in 0..1024.
    pub(super) fn draw(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % 1024) as u32
    }

    /// Returns a random part of `most`.
    pub(super) fn part(&mut self, most: Duration) -> Duration {
        most * self.draw() / 1024
    }

    /// Returns `least` and up to a quarter more.
    pub(super) fn from(&mut self, least: Duration) -> Duration {
        least * (1024 + self.draw() / 4) / 1024
    }
}
