//! Seeded randomness. Every actor and every purpose has its own generator, so that removing one actor
//! from a world changes little for the others.

use std::f64::consts::TAU;
use std::ops::Range;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A random generator for one purpose.
#[derive(Debug)]
pub struct Draw(StdRng);

impl Draw {
    /// Creates the generator of `purpose` number `index` under `seed`.
    pub fn new(seed: u64, purpose: &str, index: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&index.to_le_bytes());
        bytes[16..24].copy_from_slice(&crate::trace::fnv(purpose.as_bytes()).to_le_bytes());
        Self(StdRng::from_seed(bytes))
    }

    /// Returns a uniform number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        self.0.random()
    }

    /// Returns true in `per_mille` of 1000 draws.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.0.random_range(0..1000) < per_mille
    }

    /// Returns a uniform integer in the range.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        self.0.random_range(range)
    }

    /// Returns a uniform duration between the two.
    pub fn duration(&mut self, from: Duration, to: Duration) -> Duration {
        from + to.saturating_sub(from).mul_f64(self.unit())
    }

    /// Returns 32 random bytes, to seed another generator.
    pub fn seed(&mut self) -> [u8; 32] {
        self.0.random()
    }

    /// Returns a standard normal number, by Box and Muller's method.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }

    /// Returns an exponential number with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}
