//! A world of documents without files, and the figures of an order: for tests and measurements.

use std::convert::Infallible;

use super::blocks::{Blocks, FileShape, Span};
use super::keyed::{Key, Purpose};
use super::source::OpenBlock;
use super::walk::Documents;

/// Tokens of a document of this many bytes; the end token is one more.
const BYTES_PER_TOKEN: u64 = 4;

/// A document of a synthetic file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SyntheticDocument {
    pub file: u32,
    /// Its number in the file.
    pub unit: u64,
    pub bytes: u64,
}

impl SyntheticDocument {
    /// Returns its number of tokens.
    pub fn tokens(self) -> u64 {
        self.bytes / BYTES_PER_TOKEN + 1
    }
}

/// The form of synthetic files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntheticForm {
    Lines,
    /// Row groups of this many rows.
    RowGroups(u64),
    Compressed,
}

/// A file: the byte at which each document begins, and the size.
#[derive(Debug, Clone)]
struct SyntheticFile {
    form: SyntheticForm,
    starts: Vec<u64>,
}

impl SyntheticFile {
    fn documents(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    fn size(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    fn at(&self, unit: u64) -> u64 {
        self.starts[usize::try_from(unit)
            .unwrap_or(usize::MAX)
            .min(self.starts.len() - 1)]
    }

    fn first_at(&self, byte: u64) -> u64 {
        self.starts[..self.starts.len() - 1].partition_point(|start| *start < byte) as u64
    }

    fn shape(&self) -> FileShape {
        match self.form {
            SyntheticForm::Lines => FileShape::Lines,
            SyntheticForm::Compressed => FileShape::Whole { compressed: true },
            SyntheticForm::RowGroups(rows) => {
                let firsts = (0..self.documents()).step_by(rows.max(1) as usize);
                let groups = firsts.map(|first| {
                    let end = (first + rows).min(self.documents());
                    (end - first, self.at(end) - self.at(first))
                });
                FileShape::RowGroups(groups.collect())
            }
        }
    }
}

/// The files of a synthetic source.
#[derive(Debug, Clone, Default)]
pub struct SyntheticFiles(Vec<SyntheticFile>);

impl SyntheticFiles {
    /// Adds a file of `documents` documents whose sizes are drawn from half of `mean` to one and a half of it; those
    /// of every hundredth are ten times as large.
    pub fn add(&mut self, form: SyntheticForm, documents: u64, mean: u64) {
        let key = Key::new(
            Purpose::Documents,
            "synthetic",
            &[self.0.len() as u64, mean],
        );
        let mut starts = vec![0];
        let mut end = 0;
        for n in 0..documents {
            let size = mean / 2 + key.below(n, mean + 1);
            end += size.max(1)
                * if key.below(n + documents, 100) == 0 {
                    10
                } else {
                    1
                };
            starts.push(end);
        }
        self.0.push(SyntheticFile { form, starts });
    }

    /// Returns the blocks of the files.
    pub fn blocks(&self) -> Blocks {
        let stored = |file: &SyntheticFile| match file.form {
            SyntheticForm::Compressed => file.size() / 3,
            _ => file.size(),
        };
        Blocks::plan(
            (0..)
                .zip(&self.0)
                .map(|(n, file)| (n, stored(file), file.shape())),
        )
    }

    /// Returns the number of documents of each file.
    pub fn documents(&self) -> Vec<u64> {
        self.0.iter().map(SyntheticFile::documents).collect()
    }

    /// Returns all documents in the order of the files.
    pub fn all(&self) -> impl Iterator<Item = SyntheticDocument> {
        let ranges = (0..self.0.len() as u32).map(|file| self.range(file, 0, u64::MAX));
        ranges.flatten()
    }

    fn range(
        &self,
        file: u32,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = SyntheticDocument> + use<'_> {
        let of = &self.0[file as usize];
        (from..to.min(of.documents())).map(move |unit| SyntheticDocument {
            file,
            unit,
            bytes: of.at(unit + 1) - of.at(unit),
        })
    }
}

impl<'a> Documents for &'a SyntheticFiles {
    type Document = SyntheticDocument;
    type Error = Infallible;
    type Reader = Box<dyn Iterator<Item = Result<SyntheticDocument, Infallible>> + 'a>;

    fn open(&mut self, open: &OpenBlock, from: u64) -> Result<Self::Reader, Infallible> {
        let files: &'a SyntheticFiles = self;
        let skip = usize::try_from(from).unwrap_or(usize::MAX);
        Ok(match open.block.span {
            Span::Lines { file, from, to } => {
                let of = &files.0[file as usize];
                let range = files.range(file, of.first_at(from), of.first_at(to));
                Box::new(range.skip(skip).map(Ok))
            }
            Span::Rows { file, from, to } => {
                Box::new(files.range(file, from, to).skip(skip).map(Ok))
            }
            Span::Files { first, last } => {
                let all = (first..=last).flat_map(|file| files.range(file, 0, u64::MAX));
                Box::new(all.skip(skip).map(Ok))
            }
        })
    }

    fn bytes(document: &SyntheticDocument) -> u64 {
        document.bytes
    }
}

/// Counts neighbours from the same file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Neighbours {
    last: Option<u32>,
    pairs: u64,
    same: u64,
}

impl Neighbours {
    /// Adds the next document's file.
    pub(super) fn push(&mut self, file: u32) {
        if let Some(last) = self.last.replace(file) {
            self.pairs += 1;
            self.same += u64::from(last == file);
        }
    }

    /// Returns the share of neighbours from one file over that of a perfect shuffle of files with `documents`.
    pub(super) fn ratio(&self, documents: &[u64]) -> f64 {
        let all: u64 = documents.iter().sum();
        let of = |n: &u64| (*n as f64 / all as f64).powi(2);
        let ideal: f64 = documents.iter().map(of).sum();
        self.same as f64 / self.pairs.max(1) as f64 / ideal
    }
}
