//! Random documents with the lengths of real corpora.

use std::f64::consts::TAU;

use batchweave_console::CliError;
use batchweave_core::balance::{CostModel, CostSpec, Document};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::error::bench_error;

/// The cost of one image in tokens.
const IMAGE_COST: f64 = 1000.0;
/// The most images beside a document.
const IMAGES_MAX: u32 = 40;
/// The share of books among the documents of code and books.
const BOOKS: f64 = 0.03;

/// A corpus, whose documents' lengths are lognormal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Corpus {
    /// Instructions and answers: median 490 tokens, sigma 1.1, so that the mean is 900 and one of 1,400 documents is
    /// longer than 16,384.
    Sft,
    /// Pages of the web: median 420 tokens, sigma 1.0, so that the mean is 690, that of filtered crawls.
    Web,
    /// Files of code (median 900 tokens, sigma 1.4) and 3 % books (median 90,000, sigma 0.7), which have three fifths of
    /// the tokens.
    CodeBooks,
    /// An image as tokens (median 600, sigma 0.35, by its resolution) with a caption (median 90, sigma 0.6).
    Captions,
    /// As `Sft`, with 0 to 40 images beside the tokens, each of which costs 1,000 tokens.
    SftImages,
    /// A question (median 180 tokens, sigma 0.9) with two answers (median 310, sigma 0.9 each), which share a bin.
    Pairs,
}

/// A document before it is divided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw {
    pub(super) tokens: u32,
    /// The tokens of the second answer of a pair.
    second: u32,
    pub(super) images: u32,
}

impl Corpus {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sft => "sft",
            Self::Web => "web",
            Self::CodeBooks => "code and books",
            Self::Captions => "captions",
            Self::SftImages => "sft and images",
            Self::Pairs => "pairs",
        }
    }

    /// Returns the cost of attention, and that of images where documents have them.
    pub(super) fn model(self, crossover: f64) -> Result<CostModel, CliError> {
        let mut spec = CostSpec::attention(crossover);
        let images = self == Self::SftImages;
        if images {
            spec.arrays.insert("image".to_owned(), IMAGE_COST);
        }
        CostModel::new(&spec, if images { &["image"] } else { &[] }).map_err(bench_error)
    }

    /// Draws a document. One with images, and a pair, is drawn again until it fits into a bin, since it is not divided.
    fn draw(self, random: &mut StdRng, capacity: u32) -> Raw {
        loop {
            let raw = self.draw_once(random);
            let divided = !matches!(self, Self::SftImages | Self::Pairs);
            if divided || raw.tokens.saturating_add(raw.second) <= capacity {
                return raw;
            }
        }
    }

    fn draw_once(self, random: &mut StdRng) -> Raw {
        let mut raw = Raw {
            tokens: 0,
            second: 0,
            images: 0,
        };
        match self {
            Self::Sft => raw.tokens = lognormal(random, 490.0, 1.1),
            Self::Web => raw.tokens = lognormal(random, 420.0, 1.0),
            Self::CodeBooks if random.random_bool(BOOKS) => {
                raw.tokens = lognormal(random, 90_000.0, 0.7);
            }
            Self::CodeBooks => raw.tokens = lognormal(random, 900.0, 1.4),
            Self::Captions => {
                raw.tokens = lognormal(random, 600.0, 0.35) + lognormal(random, 90.0, 0.6);
            }
            Self::SftImages => {
                raw.tokens = lognormal(random, 490.0, 1.1);
                raw.images = random.random_range(0..=IMAGES_MAX);
            }
            Self::Pairs => {
                let question = lognormal(random, 180.0, 0.9);
                raw.tokens = question + lognormal(random, 310.0, 0.9);
                raw.second = question + lognormal(random, 310.0, 0.9);
            }
        }
        raw
    }
}

/// Returns a whole number whose logarithm is normal, by the method of Box and Muller.
fn lognormal(random: &mut StdRng, median: f64, sigma: f64) -> u32 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    let normal = radius * (TAU * random.random::<f64>()).cos();
    // A book of four million tokens is the longest.
    (median * (sigma * normal).exp()).round().clamp(1.0, 4e6) as u32
}

/// Endless documents of one corpus.
#[derive(Debug)]
pub(super) struct Documents {
    corpus: Corpus,
    random: StdRng,
    model: CostModel,
    /// Capacity of a bin.
    capacity: u32,
}

impl Documents {
    pub(super) fn new(
        corpus: Corpus,
        seed: u64,
        crossover: f64,
        capacity: u32,
    ) -> Result<Self, CliError> {
        Ok(Self {
            corpus,
            random: StdRng::seed_from_u64(seed),
            model: corpus.model(crossover)?,
            capacity,
        })
    }

    pub(super) fn model(&self) -> &CostModel {
        &self.model
    }

    pub(super) fn draw(&mut self) -> Raw {
        self.corpus.draw(&mut self.random, self.capacity)
    }

    /// Divides a document into pieces of at most a bin; neighbouring pieces share a token. Both answers of a pair are one
    /// piece.
    pub(super) fn pieces(&self, raw: Raw) -> Result<Vec<Document>, CliError> {
        let cost = |tokens| self.model.cost(tokens, &[raw.images]).map_err(bench_error);
        let mut pieces = Vec::new();
        let mut left = raw.tokens;
        loop {
            let tokens = left.min(self.capacity);
            let mut piece = Document {
                tokens,
                cost: cost(tokens)?,
                carried: false,
            };
            if raw.second > 0 {
                piece.tokens += raw.second;
                piece.cost += cost(raw.second)?;
            }
            pieces.push(piece);
            if left <= self.capacity {
                return Ok(pieces);
            }
            left -= self.capacity - 1;
        }
    }
}
