//! Input files and the documents in them: which files there are (`list`) and when new ones may join (`growing`), how their bytes are read
//! (`open`, `remote`, `decompress`), how they fall into units (`lines`, `columns`) and how a unit
//! becomes a document's text (`decode`) or a sample's arrays (`cells`, `sample`).
//!
//! A *unit* is what can hold one document: a line, a row, or a whole text file. Units are numbered
//! from 0 in each file, blank and bad ones included, so that a place never depends on content.

mod cells;
mod columns;
mod decode;
mod decompress;
mod error;
mod growing;
mod lines;
mod list;
mod open;
mod read;
mod remote;
mod sample;

pub use batchweave_core::inputs::PinnedFile;
pub use cells::Cell;
pub(crate) use decode::without_place;
pub use decode::{Field, decode};
pub use error::{DocumentError, Reason, SourceError};
pub use growing::{Inputs, Looking, Settled};
pub use list::{InputFile, InputList, Location};
pub use open::{Format, OpenStore, expand, look};
pub use read::{FileReader, ReadOptions};
pub use sample::sample;

/// Where a document begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Index in the input list.
    pub file: u32,
    /// Line, row, or 0 for a whole file.
    pub unit: u64,
    /// Offset of the unit in the decompressed file, for a quick seek; 0 where seeking goes by rows.
    pub offset: u64,
}

/// One unit as read: bytes that are still to be decoded, or what is wrong with it already.
#[derive(Debug)]
pub struct Unit {
    /// Where it begins.
    pub place: Place,
    /// Its bytes; none when it has cells.
    pub raw: Result<Vec<u8>, Reason>,
    /// The columns of a row that becomes a sample.
    pub cells: Vec<Cell>,
}

impl Unit {
    /// Bytes of what was read.
    pub fn bytes(&self) -> usize {
        let raw = self.raw.as_ref().map_or(0, Vec::len);
        raw + self
            .cells
            .iter()
            .map(|cell| cell.size() as usize)
            .sum::<usize>()
    }
}

/// Which units belong to this producer, so that several share the input without talking: unit `u`
/// of file `f` belongs to producer `(f + u) mod of`. It spreads lines of one file and files of one
/// document alike, and depends on nothing but positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// This producer's index, from 0.
    pub index: u32,
    /// How many producers share the input.
    pub of: u32,
}

impl Share {
    /// The whole input.
    pub const ALL: Self = Self { index: 0, of: 1 };

    /// Whether the unit is ours.
    pub fn owns(self, file: u32, unit: u64) -> bool {
        (u64::from(file) + unit) % u64::from(self.of) == u64::from(self.index)
    }
}

#[cfg(test)]
mod tests;
