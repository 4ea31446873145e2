//! A keyed permutation of 0..n without memory: four rounds of a Feistel network over the next power of four, and
//! cycle walking, which repeats the network until the result lies below n.

use super::keyed::{Key, mix};

/// A permutation of the numbers below `len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permutation {
    key: Key,
    len: u64,
    /// Bits of each half.
    half: u32,
}

impl Permutation {
    /// Returns the permutation of `key` over 0..`len`.
    pub(crate) fn new(key: Key, len: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let half = bits.div_ceil(2).max(1);
        Self { key, len, half }
    }

    /// Returns the number at position `at`; `at` itself when it is not below the length.
    pub(crate) fn get(self, at: u64) -> u64 {
        let mut number = at;
        if at >= self.len {
            return at;
        }
        // The network permutes a set that holds `at`, so its cycle returns below `len`. The set is at most four
        // times as large, so four turns are the average at most.
        loop {
            number = self.network(number);
            if number < self.len {
                return number;
            }
        }
    }

    fn network(self, number: u64) -> u64 {
        let mask = (1_u64 << self.half) - 1;
        let (mut left, mut right) = (number >> self.half, number & mask);
        for word in self.key.0 {
            let next = left ^ (mix(right.wrapping_add(word)) & mask);
            (left, right) = (right, next);
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::super::keyed::Purpose;
    use super::*;

    fn permutation(seed: u64, len: u64) -> Permutation {
        Permutation::new(Key::new(Purpose::Blocks, "s", &[seed]), len)
    }

    #[test]
    fn each_number_has_one_position() {
        for len in (0..300).chain([1000, 1024, 1025, 4097]) {
            let p = permutation(len, len);
            let mut seen: Vec<u64> = (0..len).map(|at| p.get(at)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..len), "{len}");
        }
        let large = permutation(1, 1 << 62);
        assert!(large.get(5) < 1 << 62);
        assert_eq!(permutation(1, 4).get(4), 4, "not among its numbers");
    }

    /// As computed by another program after docs/order.md.
    #[test]
    fn the_permutation_is_that_of_the_page() {
        let p = Permutation::new(Key::new(Purpose::Blocks, "web", &[7, 0]), 10);
        let all: Vec<u64> = (0..10).map(|at| p.get(at)).collect();
        assert_eq!(all, [6, 5, 4, 3, 2, 9, 1, 0, 8, 7]);
    }

    /// The number at the first position is even over keys: 31 degrees of freedom, of which the sum is below 62 with
    /// a probability of 0.999.
    #[test]
    fn positions_do_not_depend_on_numbers() {
        for at in [0, 1, 15, 31] {
            let mut counts = [0_f64; 32];
            for seed in 0..3200 {
                counts[permutation(seed, 32).get(at) as usize] += 1.0;
            }
            let chi: f64 = counts.iter().map(|n| (n - 100.0).powi(2) / 100.0).sum();
            assert!(chi < 62.0, "{chi} at {at}");
        }
    }

    /// Neighbours are not neighbours afterwards: of 10,000 numbers, about one pair would be by chance.
    #[test]
    fn neighbours_are_separated() {
        let p = permutation(9, 10_000);
        let near = (1..10_000).filter(|&at| p.get(at).abs_diff(p.get(at - 1)) == 1);
        assert!(near.count() < 12);
    }
}
