//! The record batches of a file or a stream of Arrow, in order, with the dictionaries that they need.

use std::collections::HashMap;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::Endianness;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_schema::{Schema, SchemaRef};

use super::footer;
use super::frames::{Frame, Frames, Start, broken, malformed};
use crate::sources::file_stream::FileStream;
use crate::sources::unit_reader::Outcome;

/// A cursor over the record batches of a file.
pub(super) struct Batches {
    schema: SchemaRef,
    /// The columns that are decoded; their order is that of the batches.
    columns: Vec<usize>,
    dictionaries: HashMap<i64, ArrayRef>,
    frames: Frames,
    /// The offsets of the messages; `None` where each follows the one before.
    places: Option<std::vec::IntoIter<u64>>,
    ended: bool,
}

impl Batches {
    /// Reads the schema; `None` of an empty file.
    pub(super) fn open(stream: &mut FileStream<'_>) -> Outcome<Option<Self>> {
        let mut frames = Frames::new(stream.open_at(0)?, 0);
        let first = match frames.begin()? {
            Start::Nothing => return Ok(None),
            Start::File if stream.is_plain() => {
                let footer = footer::read(stream)?;
                let places = Some(footer.messages.into_iter());
                return Ok(Some(Self::new(footer.schema, frames, places)));
            }
            // The footer of a compressed file is found at its end alone.
            Start::File => frames.first()?,
            Start::Stream(start) => frames.next(start)?,
        };
        let first = first.ok_or_else(|| broken("it ends before its schema"))?;
        Ok(Some(Self::new(schema(&first)?, frames, None)))
    }

    fn new(schema: Schema, frames: Frames, places: Option<std::vec::IntoIter<u64>>) -> Self {
        Self {
            schema: schema.into(),
            columns: Vec::new(),
            dictionaries: HashMap::new(),
            frames,
            places,
            ended: false,
        }
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Sets the columns of the batches that follow, by their places in the schema.
    pub(super) fn select(&mut self, columns: Vec<usize>) {
        self.columns = columns;
    }

    /// Returns the offset behind the bytes that are read.
    pub(super) fn offset(&self) -> u64 {
        self.frames.offset()
    }

    fn next_frame(&mut self) -> Outcome<Option<Frame>> {
        let Some(places) = &mut self.places else {
            let start = self.frames.take(4)?;
            return self.frames.next(start);
        };
        let Some(offset) = places.next() else {
            return Ok(None);
        };
        let frame = self.frames.at(offset)?;
        frame
            .map(Some)
            .ok_or_else(|| broken("its footer names a message that is not there"))
    }

    /// Returns the next batch that has more than `behind` rows, and subtracts those of the batches before it.
    pub(super) fn next(&mut self, behind: &mut u64) -> Outcome<Option<RecordBatch>> {
        while !self.ended {
            let Some(frame) = self.next_frame()? else {
                self.ended = true;
                break;
            };
            let message = frame.message()?;
            let (body, version) = (&frame.body, &message.version());
            if let Some(dictionary) = message.header_as_dictionary_batch() {
                let known = &mut self.dictionaries;
                read_dictionary(body, dictionary, &self.schema, known, version)
                    .map_err(malformed)?;
                continue;
            }
            let batch = message.header_as_record_batch();
            let batch = batch.ok_or_else(|| {
                broken("a message is of another kind than dictionaries and record batches")
            })?;
            let rows = u64::try_from(batch.length()).unwrap_or(0);
            if rows <= *behind {
                *behind -= rows;
                continue;
            }
            let (schema, columns) = (self.schema.clone(), Some(&self.columns[..]));
            let read = read_record_batch(body, batch, schema, &self.dictionaries, columns, version);
            return read.map(Some).map_err(malformed);
        }
        Ok(None)
    }
}

/// Returns the schema in the first message.
fn schema(first: &Frame) -> Outcome<Schema> {
    let schema = first.message()?.header_as_schema();
    let schema = schema.ok_or_else(|| broken("it does not begin with a schema"))?;
    if schema.endianness() != Endianness::Little {
        return Err(broken("its numbers are big-endian"));
    }
    try_fb_to_schema(schema).map_err(malformed)
}
