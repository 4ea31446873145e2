//! The messages of a file or a stream of Arrow. Each is bounded before its bytes are read or decompressed.

use std::collections::HashMap;
use std::io::Read as _;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_ipc::{Endianness, Message, root_as_message};
use arrow_schema::{ArrowError, Schema, SchemaRef};

use crate::sources::Reason;
use crate::sources::file_stream::Stream;
use crate::sources::unit_reader::{Outcome, ReadFailure};

/// Most bytes of the description of a message: its schema, or the places of its buffers.
const HEADER_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of a record batch, in the file and decompressed.
pub(super) const BATCH_BYTES_MAX: u64 = 1 << 30;
/// The first bytes of a file; a stream has none.
const FILE_MARK: &[u8] = b"ARROW1\0\0";
const FEATHER_1_MARK: &[u8] = b"FEA1";
/// The bytes before the length of a message, since release 0.15 of Arrow.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// A cursor over the record batches of a file.
pub(super) struct Batches {
    schema: SchemaRef,
    /// The columns that are decoded; their order is that of the batches.
    columns: Vec<usize>,
    dictionaries: HashMap<i64, ArrayRef>,
    frames: Frames,
    ended: bool,
}

/// The bytes of a file, message by message.
struct Frames {
    from: Stream,
    /// Bytes that are read.
    offset: u64,
}

/// A message: its description, and its data.
struct Frame {
    header: Vec<u8>,
    body: Buffer,
}

impl Frame {
    fn message(&self) -> Outcome<Message<'_>> {
        root_as_message(&self.header).map_err(|why| broken(why.to_string()))
    }
}

fn broken(detail: impl Into<String>) -> ReadFailure {
    ReadFailure::Content(Reason::BrokenArrow {
        detail: detail.into(),
    })
}

// As a function that `map_err` takes.
#[expect(clippy::needless_pass_by_value)]
fn malformed(why: ArrowError) -> ReadFailure {
    broken(why.to_string())
}

impl Batches {
    /// Reads the schema; `None` of an empty file.
    pub(super) fn open(from: Stream) -> Outcome<Option<Self>> {
        let mut frames = Frames { from, offset: 0 };
        let Some(start) = frames.begin()? else {
            return Ok(None);
        };
        let Some(frame) = frames.next(start)? else {
            return Err(broken("it ends before its schema"));
        };
        let schema = frame.message()?.header_as_schema();
        let schema = schema.ok_or_else(|| broken("it does not begin with a schema"))?;
        if schema.endianness() != Endianness::Little {
            return Err(broken("its numbers are big-endian"));
        }
        Ok(Some(Self {
            schema: try_fb_to_schema(schema).map_err(malformed)?.into(),
            columns: Vec::new(),
            dictionaries: HashMap::new(),
            frames,
            ended: false,
        }))
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Sets the columns of the batches that follow, by their places in the schema.
    pub(super) fn select(&mut self, columns: Vec<usize>) {
        self.columns = columns;
    }

    /// Returns the bytes that are read.
    pub(super) fn offset(&self) -> u64 {
        self.frames.offset
    }

    /// Returns the next batch that has more than `behind` rows, and subtracts those of the batches before it.
    pub(super) fn next(&mut self, behind: &mut u64) -> Outcome<Option<RecordBatch>> {
        while !self.ended {
            let start = self.frames.take(4)?;
            let Some(frame) = self.frames.next(start)? else {
                self.ended = true;
                break;
            };
            let message = frame.message()?;
            if let Some(dictionary) = message.header_as_dictionary_batch() {
                let known = &mut self.dictionaries;
                read_dictionary(
                    &frame.body,
                    dictionary,
                    &self.schema,
                    known,
                    &message.version(),
                )
                .map_err(malformed)?;
                continue;
            }
            let batch = message.header_as_record_batch();
            let batch = batch.ok_or_else(|| broken("a message is no record batch"))?;
            let rows = u64::try_from(batch.length()).unwrap_or(0);
            if rows <= *behind {
                *behind -= rows;
                continue;
            }
            let columns = Some(&self.columns[..]);
            let known = &self.dictionaries;
            let schema = self.schema.clone();
            return read_record_batch(
                &frame.body,
                batch,
                schema,
                known,
                columns,
                &message.version(),
            )
            .map(Some)
            .map_err(malformed);
        }
        Ok(None)
    }
}

impl Frames {
    /// Reads the mark of a file, and the first bytes of its first message; `None` of an empty file.
    fn begin(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut start = self.take(4)?;
        if start.is_empty() {
            return Ok(None);
        }
        if start == FEATHER_1_MARK {
            return Err(broken(
                "it is of Feather's first version; write it again with pyarrow.feather.write_feather",
            ));
        }
        if FILE_MARK.starts_with(&start) {
            start.extend(self.take(4)?);
            if start != FILE_MARK {
                return Err(broken("it does not begin as a file of Arrow"));
            }
            // Some writers put the first message at the next multiple of 64 bytes.
            start = self.take(4)?;
            while start == [0; 4] && self.offset < 64 {
                start = self.take(4)?;
            }
        }
        Ok(Some(start))
    }

    /// Reads a message that begins with `start`; `None` where the mark of the end is.
    fn next(&mut self, start: Vec<u8>) -> Outcome<Option<Frame>> {
        let mut length = self.whole(start, 4)?;
        if length == CONTINUATION {
            length = self.whole(Vec::new(), 4)?;
        }
        let length = length.try_into().map_or(0, u32::from_le_bytes);
        if length == 0 {
            return Ok(None);
        }
        if u64::from(length) > HEADER_BYTES_MAX {
            return Err(broken(
                "it is no file of Arrow, or its columns have too many parts",
            ));
        }
        let header = self.whole(Vec::new(), u64::from(length))?;
        let mut frame = Frame {
            header,
            body: Buffer::from(&[]),
        };
        let bytes = body_bytes(&frame.message()?)?;
        let body = self.whole(Vec::new(), bytes)?;
        check_decompressed(&frame.message()?, &body)?;
        frame.body = Buffer::from_vec(body);
        Ok(Some(frame))
    }

    /// Reads until `bytes` are `length`.
    fn whole(&mut self, mut bytes: Vec<u8>, length: u64) -> Outcome<Vec<u8>> {
        let missing = length.saturating_sub(bytes.len() as u64);
        bytes.extend(self.take(missing)?);
        if (bytes.len() as u64) < length {
            return Err(broken("it ends early, without the mark of its end"));
        }
        Ok(bytes)
    }

    /// Reads at most `length` bytes, fewer at the end. Memory grows with what is there, not with what is said.
    fn take(&mut self, length: u64) -> Outcome<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = (&mut self.from).take(length).read_to_end(&mut bytes);
        self.offset += read.map_err(ReadFailure::Io)? as u64;
        Ok(bytes)
    }
}

/// Returns the length of what follows the description of a message.
fn body_bytes(message: &Message<'_>) -> Outcome<u64> {
    let body = u64::try_from(message.bodyLength());
    match body {
        Ok(bytes) if bytes <= BATCH_BYTES_MAX => Ok(bytes),
        Ok(bytes) => Err(too_large(bytes)),
        Err(_) => Err(broken("a message has a negative length")),
    }
}

fn too_large(bytes: u64) -> ReadFailure {
    broken(format!(
        "a record batch has {bytes} bytes, and at most {BATCH_BYTES_MAX} are read at once; write smaller ones"
    ))
}

/// Checks what the buffers of a compressed batch say that they are decompressed, since that much is then allocated.
fn check_decompressed(message: &Message<'_>, body: &[u8]) -> Outcome<()> {
    let dictionary = message.header_as_dictionary_batch();
    let dictionary = dictionary.and_then(|dictionary| dictionary.data());
    let batch = message.header_as_record_batch().or(dictionary);
    let Some(batch) = batch.filter(|batch| batch.compression().is_some()) else {
        return Ok(());
    };
    let mut all: u64 = 0;
    for buffer in batch.buffers().into_iter().flatten() {
        let at = usize::try_from(buffer.offset()).ok();
        let length = at.and_then(|at| body.get(at..)?.first_chunk::<8>());
        // -1 marks a buffer that is not compressed; others below 0 are refused by the decoder.
        let length = length.map_or(0, |length| i64::from_le_bytes(*length));
        all = all.saturating_add(u64::try_from(length).unwrap_or(0));
    }
    if all > BATCH_BYTES_MAX {
        return Err(too_large(all));
    }
    Ok(())
}
