//! The footer of a file, which names its messages. Some writers, as Polars, leave nothing else that can be read: their
//! first message has no length.

use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{Block, Endianness, root_as_footer};
use arrow_schema::Schema;

use super::frames::{Frames, HEADER_BYTES_MAX, broken, malformed};
use crate::sources::file_stream::FileStream;
use crate::sources::unit_reader::Outcome;

/// The length of the footer, and the mark that a file ends with.
const END_BYTES: u64 = 10;
const END_MARK: &[u8] = b"ARROW1";

/// The schema of a file, and the offsets of its dictionaries and batches in order.
pub(super) struct Footer {
    pub(super) schema: Schema,
    pub(super) messages: Vec<u64>,
}

/// Reads the footer of a file that is not compressed.
pub(super) fn read(stream: &mut FileStream<'_>) -> Outcome<Footer> {
    let cut = || broken("it ends without its footer, so it was cut or is still written");
    let size = stream.file.pin.size;
    let end_at = size.checked_sub(END_BYTES).ok_or_else(cut)?;
    let end = bytes_at(stream, end_at, END_BYTES)?;
    let (length, mark) = end.split_first_chunk::<4>().ok_or_else(cut)?;
    let length = u64::try_from(i32::from_le_bytes(*length)).unwrap_or(0);
    if mark != END_MARK || length == 0 || length > HEADER_BYTES_MAX {
        return Err(cut());
    }
    let from = end_at.checked_sub(length).ok_or_else(cut)?;
    let bytes = bytes_at(stream, from, length)?;
    let footer = root_as_footer(&bytes).map_err(|why| broken(why.to_string()))?;
    let schema = footer.schema().ok_or_else(|| broken("it has no schema"))?;
    if schema.endianness() != Endianness::Little {
        return Err(broken("its numbers are big-endian"));
    }
    let batches: Vec<u64> = footer
        .recordBatches()
        .into_iter()
        .flatten()
        .map(offset)
        .collect();
    if !batches.is_sorted() {
        return Err(broken(
            "its batches are not stored in their order; write it again",
        ));
    }
    let dictionaries = footer.dictionaries().into_iter().flatten().map(offset);
    let mut messages: Vec<u64> = dictionaries.chain(batches).collect();
    messages.sort_unstable();
    let schema = try_fb_to_schema(schema).map_err(malformed)?;
    Ok(Footer { schema, messages })
}

fn offset(block: &Block) -> u64 {
    u64::try_from(block.offset()).unwrap_or(0)
}

fn bytes_at(stream: &mut FileStream<'_>, offset: u64, length: u64) -> Outcome<Vec<u8>> {
    let from = stream.open_at(offset)?;
    Frames::new(from, offset).take(length)
}
