//! Input files and the units in them.
//!
//! - `find` finds the files of the configured paths; `list` is their list, which may grow (`growing`) and is
//!   stored beside the log (`stored_list`);
//! - `read` reads the units of a file of any `format`: `lines` of text (`line_blocks`), `rows` of Parquet (`columns`, `cells`,
//!   `conversations`), samples of tar `shards`, or whole files;
//! - `ids` reads token ids of .npy arrays and of Megatron's files;
//! - `inbox` finds the files that writers append to inboxes;
//! - `shapes` finds how files are divided into blocks, and `blocks` reads those of several sources in any order;
//! - `remote` reads bytes of files and objects, `decompress` those of gzip and zstd, `parquet_bytes` those of Parquet
//!   files, whose `row_groups` are read one after another, and whose `footers` are kept;
//! - `named_files` reads the files that fields and columns name;
//! - `preview` reads the first documents of a file with all of their fields (`column_names`), for a survey;
//! - `plan` is a source as it is read, in `file_order` or by blocks;
//! - `error` holds the reasons why a document or the input is refused, `document_error` the place of a bad document.
//!
//! A *unit* can hold one document: a line, a row, a sample of a tar, or a whole text file. Units are numbered from 0 in each
//! file, blank and bad ones included, so that a place never depends on content.

mod arrow;
mod blocks;
mod cell;
mod cells;
mod column_names;
mod columns;
mod conversations;
mod csv;
mod decompress;
mod document_error;
mod error;
mod file_order;
mod file_stream;
mod find;
mod footers;
mod format;
mod formats;
mod growing;
mod ids;
pub(crate) mod inbox;
mod input_error;
mod input_file;
mod left_out;
mod line;
mod line_blocks;
mod lines;
mod list;
mod local_file;
mod named_files;
mod open_store;
mod parquet_bytes;
mod plan;
mod preview;
mod read;
mod read_ids;
mod read_lines;
mod read_options;
mod read_rows;
mod read_shards;
mod read_text;
mod remote;
mod row_groups;
mod row_json;
mod rows;
mod shapes;
mod shards;
mod sniff;
mod stored_list;
mod unit_reader;
mod whole;

pub use batchweave_core::inputs::PinnedFile;
pub use batchweave_core::order::Portion;
use batchweave_core::order::Position;
pub use blocks::{BlockReader, SourceFiles};
use bytes::Bytes;
pub use cell::Cell;
pub use document_error::{DocumentError, Numbered};
pub use error::Reason;
pub use find::{InputFinder, NamedPaths, find_all};
pub use format::Format;
pub(crate) use format::ending;
pub use growing::{Inputs, Settled};
pub use input_error::SourceError;
pub(crate) use input_error::shown;
pub use input_file::{InputFile, Location};
pub use left_out::LeftOut;
pub use list::InputList;
pub use named_files::{FileRoot, NamedFile};
pub use open_store::OpenStore;
pub use plan::SourcePlan;
pub(crate) use plan::{BlockOrders, ReadOrder, plan_blocks};
pub(crate) use preview::Preview;
pub use read::FileReader;
pub use read_options::{ReadContent, ReadOptions};
pub use row_json::ConversationColumns;
pub(crate) use shapes::{ShapeError, shapes};
pub(crate) use shards::{MemberKind, TextField, alternatives};
pub(crate) use stored_list::store_list;

/// The place where a document begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Index in the input list.
    pub file: u32,
    /// Line, row or sample, from 0; 0 for a whole file.
    pub unit: u64,
    /// Offset of the unit in the decompressed file, for a quick seek; 0 in Parquet files, which seek by row.
    pub offset: u64,
}

impl Place {
    /// Returns the beginning of a file.
    pub(crate) fn of_file(file: u32) -> Self {
        Self {
            file,
            ..Self::default()
        }
    }

    /// Returns the position of the unit here, of a source in the order of its files.
    pub(crate) fn position(self, pass: u64) -> Position {
        Position {
            pass,
            group: self.file.into(),
            window: self.unit,
            number: self.offset,
        }
    }

    /// Returns the place at a position of a source in the order of its files; `None` behind all files.
    pub(crate) fn at(position: Position) -> Option<Self> {
        Some(Self {
            file: u32::try_from(position.group).ok()?,
            unit: position.window,
            offset: position.number,
        })
    }
}

/// The kind of a unit, which says how its document is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnitKind {
    /// A line with a JSON object.
    #[default]
    Json,
    /// A line of text.
    Line,
    /// A text that is a whole file.
    Text,
    /// A row of columns.
    Row,
    /// A file with one array.
    Array,
    /// Token ids, which are its only cell.
    Ids,
    /// The files of a sample of a tar.
    Sample,
}

/// One unit as read: bytes that are still to be decoded, or the reason why it is bad.
#[derive(Debug)]
pub struct Unit {
    pub place: Place,
    pub kind: UnitKind,
    /// The bytes of the unit; empty for a row of cells, and the key of a tar's sample, whose fields are cells.
    pub raw: Result<Bytes, Reason>,
    /// The columns of a Parquet row or the fields of a tar's sample.
    pub cells: Vec<Cell>,
}

impl Unit {
    /// Returns the size in memory in bytes.
    pub fn bytes(&self) -> usize {
        let raw = self.raw.as_ref().map_or(0, Bytes::len);
        raw + self
            .cells
            .iter()
            .map(|cell| cell.size() as usize)
            .sum::<usize>()
    }
}

#[cfg(test)]
mod consumed_tests;
#[cfg(test)]
mod remote_tests;
#[cfg(test)]
mod tests;
