//! From a source's input list to its blocks: the units that are read as a whole, at any place. The list of blocks is
//! never written out: runs of equal blocks are counted, so that a source of a petabyte takes memory per file only.

use crate::limits::{EXPANSION, ORDER_BLOCK_BYTES};

/// The shape of an input file, as far as blocks depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileShape {
    /// Lines, uncompressed: a line belongs to the block that its first byte lies in.
    Lines,
    /// Groups of rows that are read by number, each with its rows and their bytes.
    RowGroups(Vec<(u64, u64)>),
    /// Documents that are read from the beginning of the file only.
    Whole {
        /// The file expands when it is read.
        compressed: bool,
    },
}

/// The part of the input that a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// The lines of a file whose first byte lies in `from..to`.
    Lines { file: u32, from: u64, to: u64 },
    /// The rows `from..to` of a file.
    Rows { file: u32, from: u64, to: u64 },
    /// Whole files with these indices, `last` included.
    Files { first: u32, last: u32 },
}

/// A block of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub span: Span,
    /// Its size as read; an estimate for compressed files.
    pub bytes: u64,
    /// Its number of documents, where it is known without reading.
    pub units: Option<u64>,
    /// The size is that of the documents, not an estimate.
    pub exact: bool,
}

/// Blocks of one form that follow one another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    /// Number of the first block.
    first: u64,
    form: RunForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunForm {
    /// Ranges of `ORDER_BLOCK_BYTES` of a file of this size; the last may be shorter.
    Lines {
        file: u32,
        size: u64,
    },
    One(Block),
}

/// The blocks of a source, in the order of its input list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Blocks {
    runs: Vec<Run>,
    len: u64,
    bytes: u64,
    largest: u64,
    exact: bool,
}

impl Blocks {
    /// Plans the blocks of `files`: index in the input list, size in bytes and shape of each, in the list's order.
    pub fn plan(files: impl IntoIterator<Item = (u32, u64, FileShape)>) -> Self {
        let mut blocks = Self {
            exact: true,
            ..Self::default()
        };
        let mut small: Option<Block> = None;
        for (file, size, shape) in files {
            let bytes = match shape {
                FileShape::Whole { compressed: true } => size.saturating_mul(EXPANSION),
                _ => size,
            };
            let run = match shape {
                FileShape::Lines if size == 0 => continue,
                FileShape::RowGroups(groups) => {
                    blocks.push_one(small.take());
                    blocks.push_groups(file, &groups);
                    continue;
                }
                FileShape::Lines if size > ORDER_BLOCK_BYTES => {
                    blocks.push_one(small.take());
                    blocks.push_lines(file, size);
                    continue;
                }
                FileShape::Lines | FileShape::Whole { .. } => Block {
                    span: Span::Files {
                        first: file,
                        last: file,
                    },
                    bytes,
                    units: None,
                    exact: bytes == size,
                },
            };
            let joined = small.and_then(|before| join(before, run));
            if joined.is_none() {
                blocks.push_one(small.take());
            }
            small = joined.or(Some(run));
        }
        blocks.push_one(small);
        blocks
    }

    fn push_lines(&mut self, file: u32, size: u64) {
        let form = RunForm::Lines { file, size };
        self.runs.push(Run {
            first: self.len,
            form,
        });
        self.len += size.div_ceil(ORDER_BLOCK_BYTES);
        self.bytes = self.bytes.saturating_add(size);
        self.largest = self.largest.max(ORDER_BLOCK_BYTES);
    }

    fn push_groups(&mut self, file: u32, groups: &[(u64, u64)]) {
        let mut from = 0;
        for &(rows, bytes) in groups.iter().filter(|(rows, _)| *rows > 0) {
            let to = from + rows;
            self.push_one(Some(Block {
                span: Span::Rows { file, from, to },
                bytes,
                units: Some(rows),
                exact: true,
            }));
            from = to;
        }
    }

    fn push_one(&mut self, block: Option<Block>) {
        let Some(block) = block else { return };
        let form = RunForm::One(block);
        self.runs.push(Run {
            first: self.len,
            form,
        });
        self.len += 1;
        self.bytes = self.bytes.saturating_add(block.bytes);
        self.largest = self.largest.max(block.bytes);
        self.exact &= block.exact;
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of the largest block.
    pub(super) fn largest(&self) -> u64 {
        self.largest
    }

    /// Returns whether the sizes of all blocks are exact.
    pub(super) fn is_exact(&self) -> bool {
        self.exact
    }

    /// Returns block number `n`; `None` beyond the last.
    pub fn get(&self, n: u64) -> Option<Block> {
        if n >= self.len {
            return None;
        }
        let behind = self.runs.partition_point(|run| run.first <= n);
        let run = self.runs.get(behind.checked_sub(1)?)?;
        Some(match run.form {
            RunForm::One(block) => block,
            RunForm::Lines { file, size } => {
                let from = (n - run.first) * ORDER_BLOCK_BYTES;
                let to = size.min(from + ORDER_BLOCK_BYTES);
                Block {
                    span: Span::Lines { file, from, to },
                    bytes: to - from,
                    units: None,
                    exact: true,
                }
            }
        })
    }
}

/// Returns two runs of neighbouring whole files as one block, when they are small enough together.
fn join(before: Block, next: Block) -> Option<Block> {
    let (Span::Files { first, last: end }, Span::Files { first: begin, last }) =
        (before.span, next.span)
    else {
        return None;
    };
    let bytes = before.bytes.saturating_add(next.bytes);
    (end.checked_add(1) == Some(begin) && bytes <= ORDER_BLOCK_BYTES).then_some(Block {
        span: Span::Files { first, last },
        bytes,
        units: None,
        exact: before.exact && next.exact,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: u64 = ORDER_BLOCK_BYTES;

    fn spans(blocks: &Blocks) -> Vec<(Span, u64)> {
        let all = (0..blocks.len()).map(|n| blocks.get(n).unwrap());
        all.map(|block| (block.span, block.bytes)).collect()
    }

    #[test]
    fn a_file_of_lines_is_divided_and_small_files_are_joined() {
        let whole = |compressed| FileShape::Whole { compressed };
        let blocks = Blocks::plan([
            (0, 2 * B + 5, FileShape::Lines),
            (1, B / 2, FileShape::Lines),
            (2, B / 2, whole(false)),
            (3, 1, whole(false)),
            // 4 is another source's.
            (5, 1, FileShape::Lines),
            (6, 0, FileShape::Lines),
            (7, B, whole(true)),
            (
                8,
                100,
                FileShape::RowGroups(vec![(10, 60), (0, 0), (7, 40)]),
            ),
        ]);
        let lines = |from, to| {
            let file = 0;
            (Span::Lines { file, from, to }, to - from)
        };
        let files = |first, last, bytes| (Span::Files { first, last }, bytes);
        let rows = |from, to, bytes| (Span::Rows { file: 8, from, to }, bytes);
        assert_eq!(
            spans(&blocks),
            [
                lines(0, B),
                lines(B, 2 * B),
                lines(2 * B, 2 * B + 5),
                files(1, 2, B),
                files(3, 3, 1),
                files(5, 5, 1),
                files(7, 7, EXPANSION * B),
                rows(0, 10, 60),
                rows(10, 17, 40),
            ]
        );
        assert!(!blocks.is_exact(), "of compressed files it is an estimate");
        assert_eq!(blocks.largest(), EXPANSION * B);
        assert_eq!(blocks.get(blocks.len()), None);
        assert!(Blocks::plan([]).is_empty());
    }

    #[test]
    fn a_petabyte_takes_memory_per_file_only() {
        let blocks = Blocks::plan((0..1000).map(|file| (file, 1 << 40, FileShape::Lines)));
        assert_eq!(blocks.len(), 1000 << 21);
        assert_eq!(blocks.runs.len(), 1000);
        let last = blocks.get(blocks.len() - 1).unwrap();
        let (from, to) = ((1 << 40) - B, 1 << 40);
        assert_eq!(
            last.span,
            Span::Lines {
                file: 999,
                from,
                to
            }
        );
    }
}
