//! Documents of token ids in files that hold nothing else: .npy arrays (`npy`) and Megatron's pairs (`megatron`).

use std::io::{self, Read};

use super::unit_reader::{Content, FoundUnit};
use super::{Cell, Reason};

pub(super) mod megatron;
pub(super) mod npy;

/// Returns a document of ids of the type `kind` as a unit.
fn found(kind: IntType, number: u64, offset: u64, ids: Result<Vec<i64>, Reason>) -> FoundUnit {
    let content = ids.map(|ids| Content {
        cells: vec![kind.cell(ids)],
        ..Content::default()
    });
    FoundUnit {
        number,
        offset,
        content,
    }
}

/// A type of whole numbers, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IntType {
    bytes: u8,
    signed: bool,
}

impl IntType {
    pub(super) const fn new(bytes: u8, signed: bool) -> Self {
        Self { bytes, signed }
    }

    /// Returns the size of a number in bytes.
    pub(super) fn bytes(self) -> u64 {
        self.bytes.into()
    }

    /// Returns decoded numbers as a cell.
    fn cell(self, numbers: Vec<i64>) -> Cell {
        if self.signed || self.bytes < 8 {
            return Cell::Ints(numbers);
        }
        Cell::Unsigned(numbers.into_iter().map(i64::cast_unsigned).collect())
    }

    /// Appends the numbers in `data`, whose length is a multiple of their size. Those from 2^63 on keep their bits, so
    /// they equal no end token; `cell` gives them their value back.
    pub(super) fn decode(self, data: &[u8], ids: &mut Vec<i64>) {
        let shift = 64 - 8 * u32::from(self.bytes);
        ids.extend(data.chunks_exact(self.bytes.max(1).into()).map(|item| {
            let mut word = [0; 8];
            word[..item.len()].copy_from_slice(item);
            let n = u64::from_le_bytes(word);
            if self.signed {
                (n << shift).cast_signed() >> shift
            } else {
                n.cast_signed()
            }
        }));
    }
}

/// Reads `count` numbers and appends them.
pub(super) fn read_ids(
    from: &mut impl Read,
    kind: IntType,
    count: u64,
    ids: &mut Vec<i64>,
) -> io::Result<()> {
    const CHUNK: u64 = 8 << 10;
    let mut data = Vec::new();
    let mut left = count;
    while left > 0 {
        let now = left.min(CHUNK);
        data.resize((now * kind.bytes()) as usize, 0);
        from.read_exact(&mut data)?;
        kind.decode(&data, ids);
        left -= now;
    }
    Ok(())
}
