//! Seeded documents of every length, and the rows that they must become.

use std::fmt::Write as _;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

pub(crate) const SLICES: usize = 4;
pub(crate) const SEQ_LEN: usize = 16;
/// The tokens by which one TGB advances.
const ADVANCE: usize = SLICES * SEQ_LEN;
/// The token after each document when tokens are raw bytes.
const END: u16 = 256;

/// The input of one producer: exactly this many TGBs.
pub(crate) struct Corpus {
    documents: Vec<String>,
}

impl Corpus {
    pub(crate) fn new(seed: u64, producer: u64, tgbs: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003) ^ producer);
        // The last row ends with the first token of the next TGB.
        let mut left = tgbs as usize * ADVANCE + 1;
        let mut documents = Vec::new();
        while left > 0 {
            let length = rng.random_range(1..200).min(left - 1);
            // An empty document would be an error, so the corpus has none.
            let length = length + usize::from(left - (length + 1) == 1);
            let letters = (0..length).map(|_| char::from(rng.random_range(b'!'..b'{')));
            documents.push(letters.collect());
            left -= length + 1;
        }
        Self { documents }
    }

    pub(crate) fn write(&self, path: &Path) {
        let mut text = String::new();
        for document in &self.documents {
            writeln!(text, "{}", serde_json::json!({ "text": document })).unwrap();
        }
        std::fs::write(path, text).unwrap();
    }

    /// Returns all TGBs as rows; each row includes the first token of the next.
    pub(crate) fn expected(&self) -> Vec<Vec<Vec<u16>>> {
        let mut tokens: Vec<u16> = Vec::new();
        for document in &self.documents {
            tokens.extend(document.bytes().map(u16::from));
            tokens.push(END);
        }
        let row = |tgb: usize, slice: usize| {
            let at = tgb * ADVANCE + slice * SEQ_LEN;
            tokens[at..=at + SEQ_LEN].to_vec()
        };
        (0..(tokens.len() - 1) / ADVANCE)
            .map(|tgb| (0..SLICES).map(|slice| row(tgb, slice)).collect())
            .collect()
    }
}
