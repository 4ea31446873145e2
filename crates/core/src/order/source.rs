//! The order of one source for one producer: from positions in a pass to groups of blocks, windows of documents, and
//! the order of the documents of a window.

use super::blocks::{Block, Blocks};
use super::keyed::{Key, Purpose};
use super::permutation::Permutation;
use crate::crc::crc32c;
use crate::guards;
use crate::limits::{OPEN_BLOCKS_MAX, OPEN_BLOCKS_MIN};

/// The shuffle of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shuffle {
    pub seed: u64,
    /// Bytes of documents that are shuffled among themselves.
    pub window: u64,
}

/// The share of one of several producers that read the same sources, without communication. In the order of the files,
/// unit `u` of file `f` belongs to producer `(f + u) mod of`, which spreads lines of one file and files of one document
/// alike and depends on positions only; else whole blocks are shared, and of input that grows whole files, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portion {
    /// Index of the producer, from 0.
    pub index: u32,
    /// Number of producers that read these sources.
    pub of: u32,
}

impl Portion {
    /// The share of a producer that reads alone.
    pub const ALL: Self = Self { index: 0, of: 1 };

    /// Returns whether the unit of a file belongs to this producer, in the order of the files.
    pub fn owns(self, file: u32, unit: u64) -> bool {
        (u64::from(file) + unit) % u64::from(self.of) == u64::from(self.index)
    }

    /// Returns whether the file belongs to this producer, of input that grows. The name decides, because producers may
    /// see new files in different orders.
    pub fn owns_file(self, name: &str) -> bool {
        crc32c(name.as_bytes()) % self.of.max(1) == self.index
    }
}

/// The documents of a block that a window takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// All documents of the block.
    All,
    /// This number of documents; later windows begin at a multiple of it.
    Units(u64),
    /// Documents until they have this many bytes, at least one.
    Bytes(u64),
}

impl Quota {
    /// Returns whether a window that has taken `units` documents of `bytes` bytes takes no more.
    pub fn is_met(self, units: u64, bytes: u64) -> bool {
        match self {
            Self::All => false,
            Self::Units(most) => units >= most,
            Self::Bytes(most) => bytes >= most,
        }
    }

    /// Returns the first document of `window` in the block, where it is known without reading the windows before.
    pub fn first(self, window: u64) -> Option<u64> {
        match (self, window) {
            (_, 0) => Some(0),
            (Self::Units(units), _) => Some(units.saturating_mul(window)),
            (Self::All | Self::Bytes(_), _) => None,
        }
    }
}

/// A block that is open in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenBlock {
    pub block: Block,
    /// The part that each window of the group takes.
    pub quota: Quota,
}

/// The order of a source's documents for one producer, in every pass.
#[derive(Debug, Clone)]
pub struct SourceOrder {
    name: String,
    blocks: Blocks,
    shuffle: Option<Shuffle>,
    portion: Portion,
    open_blocks: u64,
}

impl SourceOrder {
    /// Returns the order of the source `name`; without `shuffle` it is that of the input list.
    pub fn new(name: &str, blocks: Blocks, shuffle: Option<Shuffle>, portion: Portion) -> Self {
        let mean = blocks.bytes() / blocks.len().max(1);
        let open_blocks = shuffle.map_or(1, |shuffle| {
            let wanted = shuffle.window / mean.max(1);
            wanted.clamp(OPEN_BLOCKS_MIN, OPEN_BLOCKS_MAX)
        });
        let name = name.to_owned();
        Self {
            name,
            blocks,
            shuffle,
            portion,
            open_blocks,
        }
    }

    /// Returns the name of the source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the blocks of the source.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Returns the number of blocks of the largest group: about one of this many neighbours is from the same block.
    pub fn open_blocks(&self) -> u64 {
        self.open_blocks
    }

    /// Returns whether documents of a window are shuffled.
    pub fn is_shuffled(&self) -> bool {
        self.shuffle.is_some()
    }

    /// Returns the number of blocks of this producer in a pass.
    pub fn positions(&self) -> u64 {
        let (index, of) = (u64::from(self.portion.index), u64::from(self.portion.of));
        self.blocks.len().saturating_sub(index).div_ceil(of.max(1))
    }

    /// Returns the number of groups of this producer in a pass.
    pub fn groups(&self) -> u64 {
        self.positions().div_ceil(self.open_blocks.max(1))
    }

    /// Returns the blocks of `group`, of about equal numbers in all groups, so that the last one is shuffled as well
    /// as the others.
    pub fn group(&self, pass: u64, group: u64) -> Vec<OpenBlock> {
        let (positions, groups) = (self.positions(), self.groups());
        if group >= groups {
            return Vec::new();
        }
        // An even division; the product of two counts may exceed 64 bits.
        let begin = |n: u64| (u128::from(positions) * u128::from(n) / u128::from(groups)) as u64;
        let order = self.order_of_blocks(pass);
        let (index, of) = (u64::from(self.portion.index), u64::from(self.portion.of));
        let index = if guards::shares_blocks() { 0 } else { index };
        let blocks: Vec<Block> = (begin(group)..begin(group + 1))
            .map(|position| index + position * of)
            .map(|position| order.map_or(position, |order| order.get(position)))
            .filter_map(|number| self.blocks.get(number))
            .collect();
        let windows = self.windows(&blocks);
        let open = |block| OpenBlock {
            block,
            quota: quota(block, windows),
        };
        blocks.into_iter().map(open).collect()
    }

    fn order_of_blocks(&self, pass: u64) -> Option<Permutation> {
        let shuffle = self.shuffle?;
        let pass = if guards::repeats_order_of_passes() {
            0
        } else {
            pass
        };
        let key = Key::new(Purpose::Blocks, &self.name, &[shuffle.seed, pass]);
        Some(Permutation::new(key, self.blocks.len()))
    }

    /// Returns the number of windows that the blocks of a group are divided into; `None` for a group that is one
    /// window.
    fn windows(&self, blocks: &[Block]) -> Option<u64> {
        let window = self.shuffle?.window.max(1);
        let small = self.blocks.largest() <= (window / self.open_blocks.max(1)).saturating_mul(2);
        if small && self.blocks.is_exact() {
            return None;
        }
        let bytes = blocks
            .iter()
            .fold(0_u64, |sum, b| sum.saturating_add(b.bytes));
        Some(bytes.div_ceil(window).max(1))
    }

    /// Returns the order of the `count` documents of a window: the n-th that is given is the one that was read as
    /// number `order[n]`.
    pub fn order(&self, pass: u64, group: u64, window: u64, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        let Some(shuffle) = self.shuffle else {
            return order;
        };
        let index = u64::from(self.portion.index);
        let numbers = [shuffle.seed, pass, index, group, window];
        let key = Key::new(Purpose::Documents, &self.name, &numbers);
        key.shuffle(&mut order);
        order
    }
}

/// Returns the part that each of `windows` windows takes of a block: an equal part, so that all blocks of a group end together.
fn quota(block: Block, windows: Option<u64>) -> Quota {
    match (windows, block.units) {
        (None, _) => Quota::All,
        (Some(windows), Some(units)) => Quota::Units(units.div_ceil(windows).max(1)),
        (Some(windows), None) => Quota::Bytes((block.bytes / windows).max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::FileShape;
    use super::*;
    use crate::limits::ORDER_BLOCK_BYTES;

    const MIB: u64 = 1 << 20;

    fn order(
        files: u32,
        size: u64,
        shape: &FileShape,
        window: u64,
        portion: Portion,
    ) -> SourceOrder {
        let files = (0..files).map(|file| (file, size, shape.clone()));
        let shuffle = Some(Shuffle { seed: 1, window });
        SourceOrder::new("s", Blocks::plan(files), shuffle, portion)
    }

    #[test]
    fn groups_are_of_equal_size_and_hold_every_position() {
        for (blocks, of) in [(1, 1), (17, 1), (1025, 1), (1000, 3), (5, 7)] {
            let mut seen = Vec::new();
            for index in 0..of {
                let portion = Portion { index, of };
                let order = order(
                    blocks,
                    ORDER_BLOCK_BYTES,
                    &FileShape::Lines,
                    128 * MIB,
                    portion,
                );
                let sizes: Vec<usize> = (0..order.groups())
                    .map(|group| order.group(0, group).len())
                    .collect();
                let (least, most) = (sizes.iter().min(), sizes.iter().max());
                assert!(
                    most.zip(least)
                        .is_none_or(|(most, least)| most - least <= 1)
                );
                assert_eq!(sizes.iter().sum::<usize>() as u64, order.positions());
                let all = (0..=order.groups()).flat_map(|group| order.group(0, group));
                seen.extend(all.map(|open| format!("{:?}", open.block.span)));
            }
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), blocks as usize);
        }
    }

    #[test]
    fn small_blocks_make_one_window_and_large_ones_are_read_side_by_side() {
        let quota = |order: &SourceOrder| order.group(0, 0)[0].quota;
        let lines = order(
            300,
            ORDER_BLOCK_BYTES,
            &FileShape::Lines,
            128 * MIB,
            Portion::ALL,
        );
        assert_eq!((lines.open_blocks(), quota(&lines)), (256, Quota::All));
        let whole = FileShape::Whole { compressed: false };
        let whole = order(20, 1 << 30, &whole, 128 * MIB, Portion::ALL);
        assert_eq!(whole.open_blocks(), OPEN_BLOCKS_MIN);
        // 10 files of 1 GiB in a group, 80 windows.
        assert_eq!(quota(&whole), Quota::Bytes((1 << 30) / 80));
        let packed = FileShape::Whole { compressed: true };
        let packed = order(5, 1000, &packed, MIB, Portion::ALL);
        assert_eq!(quota(&packed), Quota::Bytes(20_000), "its size is a guess");
        let rows = FileShape::RowGroups(vec![(1000, 64 * MIB); 4]);
        let rows = order(10, 1 << 30, &rows, 128 * MIB, Portion::ALL);
        // 13 or 14 groups of 64 MiB in 7 windows.
        assert_eq!(quota(&rows), Quota::Units(143));
        assert_eq!(quota(&rows).first(3), Some(429));
        assert_eq!(quota(&whole).first(3), None);
        let tiny = order(
            3000,
            ORDER_BLOCK_BYTES,
            &FileShape::Lines,
            1 << 40,
            Portion::ALL,
        );
        assert_eq!(tiny.open_blocks(), OPEN_BLOCKS_MAX);
    }

    #[test]
    fn without_shuffle_the_order_is_that_of_the_list() {
        let files = (0..5).map(|file| (file, ORDER_BLOCK_BYTES, FileShape::Lines));
        let portion = Portion { index: 1, of: 2 };
        let order = SourceOrder::new("s", Blocks::plan(files), None, portion);
        assert_eq!(order.groups(), 2);
        let second = order.blocks().get(3).unwrap();
        assert_eq!(
            order.group(7, 1),
            [OpenBlock {
                block: second,
                quota: Quota::All
            }]
        );
        assert_eq!(order.order(7, 1, 0, 3), [0, 1, 2]);
    }

    /// As computed by another program after docs/order.md.
    #[test]
    fn the_order_of_a_window_is_that_of_the_page() {
        let shuffle = Some(Shuffle {
            seed: 7,
            window: MIB,
        });
        let order = SourceOrder::new("web", Blocks::default(), shuffle, Portion::ALL);
        assert_eq!(order.order(0, 3, 1, 10), [9, 0, 3, 1, 4, 2, 6, 5, 8, 7]);
    }

    #[test]
    fn each_window_has_an_order_of_its_own() {
        let order = order(4, ORDER_BLOCK_BYTES, &FileShape::Lines, MIB, Portion::ALL);
        let first = order.order(0, 0, 0, 50);
        assert_eq!(first, order.order(0, 0, 0, 50));
        for other in [
            order.order(1, 0, 0, 50),
            order.order(0, 1, 0, 50),
            order.order(0, 0, 1, 50),
        ] {
            assert_ne!(first, other);
        }
        let mut sorted = first;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..50));
        assert!(order.order(0, 0, 0, 0).is_empty());
    }
}
