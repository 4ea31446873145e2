//! The messages of a file or a stream of Arrow. Each is bounded before its bytes are read or decompressed.

use std::io::{self, Read as _};

use arrow_buffer::Buffer;
use arrow_ipc::{Message, root_as_message};
use arrow_schema::ArrowError;

use crate::sources::Reason;
use crate::sources::file_stream::Stream;
use crate::sources::unit_reader::{Outcome, ReadFailure};

/// Most bytes of the description of a message: its schema, or the places of its buffers.
pub(super) const HEADER_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of a record batch, in the file and decompressed.
pub(super) const BATCH_BYTES_MAX: u64 = 1 << 30;
/// The first bytes of a file; a stream has none.
const FILE_MARK: &[u8] = b"ARROW1\0\0";
const FEATHER_1_MARK: &[u8] = b"FEA1";
/// The bytes before the length of a message, since release 0.15 of Arrow.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// The bytes of a file, message by message.
pub(super) struct Frames {
    from: Stream,
    /// Offset of the next byte.
    offset: u64,
}

/// A message: its description, and its data.
pub(super) struct Frame {
    header: Vec<u8>,
    pub(super) body: Buffer,
}

impl Frame {
    pub(super) fn message(&self) -> Outcome<Message<'_>> {
        root_as_message(&self.header).map_err(|why| broken(why.to_string()))
    }
}

/// Returns that a file can't be read.
pub(super) fn broken(detail: impl Into<String>) -> ReadFailure {
    ReadFailure::Content(Reason::BrokenArrow {
        detail: detail.into(),
    })
}

/// The beginning of a file.
pub(super) enum Start {
    Nothing,
    /// A file, whose footer names its messages.
    File,
    /// The first bytes of a stream's first message.
    Stream(Vec<u8>),
}

// As a function that `map_err` takes.
#[expect(clippy::needless_pass_by_value)]
pub(super) fn malformed(why: ArrowError) -> ReadFailure {
    broken(why.to_string())
}

impl Frames {
    /// Returns the messages of `from`, which begins at `offset`.
    pub(super) fn new(from: Stream, offset: u64) -> Self {
        Self { from, offset }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the first bytes, which tell a file from a stream.
    pub(super) fn begin(&mut self) -> Outcome<Start> {
        let mut start = self.take(4)?;
        if start.is_empty() {
            return Ok(Start::Nothing);
        }
        if start == FEATHER_1_MARK {
            return Err(broken(
                "it is of Feather's first version; write it again with pyarrow.feather.write_feather",
            ));
        }
        if !FILE_MARK.starts_with(&start) {
            return Ok(Start::Stream(start));
        }
        start.extend(self.take(4)?);
        if start != FILE_MARK {
            return Err(broken("it does not begin as a file of Arrow"));
        }
        Ok(Start::File)
    }

    /// Reads the first message of a file that has no use for its footer. Some writers put it at a multiple of 64 bytes.
    pub(super) fn first(&mut self) -> Outcome<Option<Frame>> {
        let mut start = self.take(4)?;
        while start == [0; 4] && self.offset <= 64 {
            start = self.take(4)?;
        }
        self.next(start)
    }

    /// Goes on to the message at `offset` and reads it.
    pub(super) fn at(&mut self, offset: u64) -> Outcome<Option<Frame>> {
        let Some(gap) = offset.checked_sub(self.offset) else {
            return Err(broken("its messages overlap"));
        };
        let passed = io::copy(&mut (&mut self.from).take(gap), &mut io::sink());
        self.offset += passed.map_err(ReadFailure::Io)?;
        let start = self.take(4)?;
        self.next(start)
    }

    /// Reads a message that begins with `start`; `None` where the mark of the end is.
    pub(super) fn next(&mut self, start: Vec<u8>) -> Outcome<Option<Frame>> {
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
                "it is a file of another format, or its columns have too many parts",
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
    pub(super) fn take(&mut self, length: u64) -> Outcome<Vec<u8>> {
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
