//! Megatron's pair of files: `.bin` has the ids of all sequences, `.idx` their types, lengths and places, and the
//! sequences of each document.
//!
//! The index is read in three streams from the wanted document on, so a restart is a seek and memory does not grow
//! with the number of documents.

use std::io::{self, BufReader, Read};

use super::{IntType, found, read_ids};
use crate::sources::unit_reader::{FoundUnit, ReadFailure, UnitReader};
use crate::sources::{InputFile, Reason, remote};

const MAGIC: &[u8; 9] = b"MMIDIDX\x00\x00";
const HEADER_BYTES: u64 = 34;
const INDEX_BUFFER: usize = 64 << 10;
const DATA_BUFFER: usize = 256 << 10;
/// A gap in the data that is read rather than skipped by opening the file again.
const GAP_MAX: u64 = 1 << 20;

type Stream = BufReader<Box<dyn Read + Send>>;

/// The first bytes of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IndexHeader {
    kind: IntType,
    sequences: u64,
    /// One more than the number of documents.
    borders: u64,
}

fn wrong(detail: impl Into<String>) -> Reason {
    Reason::Megatron {
        detail: detail.into(),
    }
}

impl IndexHeader {
    /// Reads the header of an index of `size` bytes. Pure; any bytes give a header or an error.
    fn parse(head: &[u8], size: u64) -> Result<Self, Reason> {
        let rest = head
            .strip_prefix(MAGIC.as_slice())
            .ok_or_else(|| wrong("it does not begin with MMIDIDX"))?;
        let word = |at: usize| {
            let bytes = rest.get(at..at + 8)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let fields = (word(0), rest.get(8), word(9), word(17));
        let (Some(version), Some(&code), Some(sequences), Some(borders)) = fields else {
            return Err(wrong("it ends in its header"));
        };
        if version != 1 {
            return Err(wrong(format!("it has version {version}, not 1")));
        }
        let kind = match code {
            1 => IntType::new(1, false),
            2 => IntType::new(1, true),
            3 => IntType::new(2, true),
            4 => IntType::new(4, true),
            5 => IntType::new(8, true),
            8 => IntType::new(2, false),
            6 | 7 => return Err(wrong("its items are fractions, not ids")),
            other => return Err(wrong(format!("it has the unknown type code {other}"))),
        };
        let header = Self {
            kind,
            sequences,
            borders,
        };
        let wanted =
            u128::from(HEADER_BYTES) + 12 * u128::from(sequences) + 8 * u128::from(borders);
        // An index of several modalities has one more byte per sequence.
        if [wanted, wanted + u128::from(sequences)].contains(&size.into()) {
            return Ok(header);
        }
        Err(wrong(format!(
            "it has {size} bytes, and {sequences} sequences with {borders} borders of documents take {wanted}"
        )))
    }

    /// Returns the offset of the place of sequence `sequence`.
    fn pointer_at(&self, sequence: u64) -> u64 {
        HEADER_BYTES + 4 * self.sequences + 8 * sequence
    }

    /// Returns the offset of the first sequence of document `document`.
    fn border_at(&self, document: u64) -> u64 {
        HEADER_BYTES + 12 * self.sequences + 8 * document
    }
}

/// A cursor over the documents of a pair of files.
pub(in crate::sources) struct MegatronIds<'a> {
    header: IndexHeader,
    data: &'a InputFile,
    /// Most bytes of a document, at 8 per id.
    limit: u64,
    /// The lengths and places of the next sequences, and the borders of the next documents.
    lengths: Stream,
    pointers: Stream,
    borders: Stream,
    /// The ids and their offset in the data file.
    ids: Option<(Stream, u64)>,
    /// The next document and its first sequence.
    document: u64,
    sequence: u64,
}

/// Opens `file` at `at` for reads up to `end`.
fn open(file: &InputFile, (at, end): (u64, u64), buffer: usize) -> io::Result<Stream> {
    let stream = remote::open_range(file, at, end)?;
    Ok(BufReader::with_capacity(buffer, stream))
}

fn word<const N: usize>(from: &mut Stream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl<'a> MegatronIds<'a> {
    /// Opens the pair of `index` and `data` at document `document`; `None` after the last one.
    pub(in crate::sources) fn open(
        index: &InputFile,
        data: &'a InputFile,
        document: u64,
        limit: u64,
    ) -> Result<Option<Self>, ReadFailure> {
        let head = remote::head(index, HEADER_BYTES).map_err(ReadFailure::Io)?;
        let header = IndexHeader::parse(&head, index.pin.size)?;
        if document >= header.borders.saturating_sub(1) {
            return Ok(None);
        }
        let (pointers_at, borders_at) = (header.pointer_at(0), header.border_at(0));
        let open = |at, end| open(index, (at, end), INDEX_BUFFER).map_err(ReadFailure::Io);
        let mut borders = open(header.border_at(document), index.pin.size)?;
        let sequence = u64::from_le_bytes(word(&mut borders).map_err(ReadFailure::Io)?);
        if sequence > header.sequences {
            return Err(wrong(format!(
                "document {} begins at sequence {sequence} of {}",
                document + 1,
                header.sequences
            ))
            .into());
        }
        Ok(Some(Self {
            lengths: open(HEADER_BYTES + 4 * sequence, pointers_at)?,
            pointers: open(header.pointer_at(sequence), borders_at)?,
            borders,
            header,
            data,
            limit,
            ids: None,
            document,
            sequence,
        }))
    }

    /// Reads the place of the next sequence: its first byte and its number of ids.
    fn sequence(&mut self) -> Result<(u64, u64), ReadFailure> {
        let length = i32::from_le_bytes(word(&mut self.lengths).map_err(ReadFailure::Io)?);
        let pointer = i64::from_le_bytes(word(&mut self.pointers).map_err(ReadFailure::Io)?);
        let place = u64::try_from(pointer).ok().zip(u64::try_from(length).ok());
        let size = self.data.pin.size;
        let bytes = self.header.kind.bytes();
        let inside = place.filter(|(at, length)| {
            let end = at.checked_add(length * bytes);
            end.is_some_and(|end| end <= size)
        });
        self.sequence += 1;
        inside.ok_or_else(|| {
            wrong(format!(
                "sequence {} has {length} ids of {bytes} bytes from byte {pointer} on, and the .bin file has {size} bytes",
                self.sequence
            ))
            .into()
        })
    }

    fn read(&mut self, at: u64, count: u64, ids: &mut Vec<i64>) -> io::Result<()> {
        let mut stream = match self.ids.take() {
            Some((mut stream, was)) if (was..=was + GAP_MAX).contains(&at) => {
                io::copy(&mut stream.by_ref().take(at - was), &mut io::sink())?;
                stream
            }
            _ => open(self.data, (at, self.data.pin.size), DATA_BUFFER)?,
        };
        read_ids(&mut stream, self.header.kind, count, ids)?;
        self.ids = Some((stream, at + count * self.header.kind.bytes()));
        Ok(())
    }
}

impl UnitReader for MegatronIds<'_> {
    fn next(&mut self, owned: &dyn Fn(u64) -> bool) -> Result<Option<FoundUnit>, ReadFailure> {
        while self.document + 1 < self.header.borders {
            let unit = self.document;
            let end = u64::from_le_bytes(word(&mut self.borders).map_err(ReadFailure::Io)?);
            if end < self.sequence || end > self.header.sequences {
                let detail = format!("document {} ends at sequence {end}", unit + 1);
                return Err(wrong(detail).into());
            }
            let (mut ids, mut bytes, ours) = (Vec::new(), 0_u64, owned(unit));
            while self.sequence < end {
                let (at, count) = self.sequence()?;
                bytes += 8 * count;
                if ours && bytes <= self.limit {
                    self.read(at, count, &mut ids).map_err(ReadFailure::Io)?;
                } else {
                    ids = Vec::new();
                }
            }
            self.document += 1;
            if ours {
                let limit = self.limit;
                let long = bytes > limit;
                let ids = if long {
                    Err(Reason::TooLong { limit })
                } else {
                    Ok(ids)
                };
                return Ok(Some(found(self.header.kind, unit, 0, ids)));
            }
        }
        Ok(None)
    }

    fn place(&self) -> (u64, u64) {
        (self.document, 0)
    }
}

#[cfg(test)]
mod tests;
