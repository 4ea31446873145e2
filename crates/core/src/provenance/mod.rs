//! The documents that rows of TGBs were made from: an object beside the data objects, with a block for each
//! TGB. A block depends on its TGB alone, so making the TGB again gives the same block.

mod block;
mod varint;

use crate::crc::crc32c;
use crate::ids::{Hash, Seq};
use crate::limits::NUMBER_MAX;
use varint::{Reader, unzigzag};

pub use block::Block;

const MAGIC: [u8; 3] = *b"BWS";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 56;
const CRC_AT: usize = 48;
/// Bytes of length and checksum before each block.
const BLOCK_HEADER_BYTES: usize = 8;
/// Flags in the low bits of a piece's first number; the other bits are the step from the unit before.
const SKIPS: u64 = 1;
const ELSEWHERE: u64 = 2;
const NEW_ROW: u64 = 4;
const FLAG_BITS: u32 = 3;

/// Consecutive tokens of one document, or one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Piece {
    /// The pass over the input, from 0.
    pub pass: u64,
    /// The index of the file in the input list.
    pub file: u32,
    /// The line or row in the file, from 0.
    pub unit: u64,
    /// Tokens of the document before this piece.
    pub skip: u64,
    /// Tokens of this piece; 1 for a sample.
    pub items: u64,
    /// Whether the piece begins a row; always false for the first of a sequence.
    pub new_row: bool,
}

/// The arrangement of pieces in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// One sequence that all rows are cut from; a row begins with the last token of the one before.
    #[default]
    Sequence,
    /// Each row has its own pieces, side by side.
    Rows,
}

/// The sources of one TGB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sources {
    /// The arrangement of the pieces in rows.
    pub form: Form,
    /// The pieces in the order of the rows.
    pub pieces: Vec<Piece>,
}

impl Sources {
    /// Returns the pieces as they add up over TGBs with this number of inputs: of a sequence without the token that the
    /// next TGB begins with.
    pub fn counted(&self, inputs: u64) -> impl Iterator<Item = Piece> {
        let mut left = match self.form {
            Form::Sequence => inputs,
            Form::Rows => u64::MAX,
        };
        self.pieces.iter().filter_map(move |piece| {
            let items = piece.items.min(left);
            left -= items;
            (items > 0).then_some(Piece { items, ..*piece })
        })
    }
}

/// The content of a provenance object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// The hash of the producer's input list, which has the names of the files.
    pub inputs: Hash,
    pub first_seq: Seq,
    /// The sources of each TGB, in order of sequence numbers.
    pub tgbs: Vec<Sources>,
}

/// The error of bytes that are not a provenance object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProvenanceError {
    /// The object ends too early.
    #[error("provenance is cut short")]
    Truncated,
    #[error("not a provenance object: bad magic number")]
    Magic,
    /// The object is of a later version of the format.
    #[error("provenance has version {0}, this build reads version 1: upgrade BatchWeave")]
    Version(u8),
    /// The header was damaged.
    #[error("the header of provenance fails its checksum")]
    HeaderCrc,
    /// A block was damaged.
    #[error("the provenance of TGB {seq} fails its checksum")]
    BlockCrc { seq: Seq },
    /// A block with the right checksum and impossible content.
    #[error("the provenance of TGB {seq} is malformed")]
    Malformed { seq: Seq },
    /// There are bytes after the last block.
    #[error("provenance has bytes after its last TGB")]
    Trailing,
}

impl Provenance {
    /// Returns the stored form.
    pub fn encode(&self) -> Vec<u8> {
        let blocks: Vec<Vec<u8>> = self.tgbs.iter().map(Sources::encode).collect();
        Self::of_blocks(self.inputs, self.first_seq, &blocks)
    }

    /// Returns the stored form of finished [`Block`]s, one for each TGB from `first_seq` on.
    pub fn of_blocks(inputs: Hash, first_seq: Seq, blocks: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        out.extend_from_slice(&(blocks.len() as u32).to_le_bytes());
        out.extend_from_slice(&first_seq.to_le_bytes());
        out.extend_from_slice(&inputs.0);
        let crc = crc32c(&out[..CRC_AT]);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for block in blocks {
            out.extend_from_slice(&(block.len() as u32).to_le_bytes());
            out.extend_from_slice(&crc32c(block).to_le_bytes());
            out.extend_from_slice(block);
        }
        out
    }

    /// Decodes the stored form.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProvenanceError> {
        let Some((head, mut rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(ProvenanceError::Truncated);
        };
        if head[..3] != MAGIC {
            return Err(ProvenanceError::Magic);
        }
        if head[3] != VERSION {
            return Err(ProvenanceError::Version(head[3]));
        }
        if u32_at(head, CRC_AT) != crc32c(&head[..CRC_AT]) || head[52..] != [0; 4] {
            return Err(ProvenanceError::HeaderCrc);
        }
        let (mut first_seq, mut inputs) = ([0; 8], [0; 32]);
        first_seq.copy_from_slice(&head[8..16]);
        inputs.copy_from_slice(&head[16..CRC_AT]);
        let first_seq = u64::from_le_bytes(first_seq);
        let mut tgbs = Vec::new();
        for n in 0..u32_at(head, 4) {
            let seq = first_seq.saturating_add(n.into());
            let (block, behind) = block(rest, seq)?;
            tgbs.push(Sources::decode(block).ok_or(ProvenanceError::Malformed { seq })?);
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(ProvenanceError::Trailing);
        }
        Ok(Self {
            inputs: Hash(inputs),
            first_seq,
            tgbs,
        })
    }

    /// Returns the sources of the TGB `seq`.
    pub fn get(&self, seq: Seq) -> Option<&Sources> {
        let n = usize::try_from(seq.checked_sub(self.first_seq)?).ok()?;
        self.tgbs.get(n)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    u32::from_le_bytes(four.unwrap_or_default())
}

/// Splits `bytes` into the block at its beginning and the rest.
fn block(bytes: &[u8], seq: Seq) -> Result<(&[u8], &[u8]), ProvenanceError> {
    let Some((head, rest)) = bytes.split_at_checked(BLOCK_HEADER_BYTES) else {
        return Err(ProvenanceError::Truncated);
    };
    let Some((block, rest)) = rest.split_at_checked(u32_at(head, 0) as usize) else {
        return Err(ProvenanceError::Truncated);
    };
    if crc32c(block) != u32_at(head, 4) {
        return Err(ProvenanceError::BlockCrc { seq });
    }
    Ok((block, rest))
}

impl Sources {
    /// Returns the encoded block.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Block::new(self.form);
        for piece in &self.pieces {
            block.put(piece);
        }
        block.out
    }

    fn decode(block: &[u8]) -> Option<Self> {
        let (&form, rest) = block.split_first()?;
        let form = match form {
            0 => Form::Sequence,
            1 => Form::Rows,
            _ => return None,
        };
        let mut reader = Reader(rest);
        let mut pieces: Vec<Piece> = Vec::new();
        // Sums stay below the numeric limit, so that placing the pieces can't overflow.
        let below = |sum: Option<u64>| sum.filter(|sum| *sum < NUMBER_MAX);
        let mut items = 0_u64;
        while !reader.0.is_empty() {
            let head = reader.next()?;
            let mut piece = if head & ELSEWHERE == 0 {
                let last = pieces.last()?;
                let unit = unzigzag(last.unit, head >> FLAG_BITS)?;
                Piece { unit, ..*last }
            } else {
                Piece {
                    pass: reader.next()?,
                    file: reader.next()?.try_into().ok()?,
                    unit: reader.next()?,
                    ..Piece::default()
                }
            };
            piece.skip = if head & SKIPS == 0 { 0 } else { reader.next()? };
            piece.items = reader.next()?;
            below(piece.skip.checked_add(piece.items))?;
            items = below(items.checked_add(piece.items))?;
            piece.new_row = head & NEW_ROW != 0;
            pieces.push(piece);
        }
        Some(Self { form, pieces })
    }

    /// Returns each piece with its row and its position in that row. There are `rows` rows, which advance
    /// by `seq_len` tokens and hold one more; in a sequence a piece may lie in several rows and is cut.
    pub fn placed(&self, seq_len: u64, rows: u64) -> Vec<(u64, u64, Piece)> {
        match self.form {
            Form::Sequence => self.cut(seq_len.max(1), rows),
            Form::Rows => self.side_by_side(),
        }
    }

    fn cut(&self, stride: u64, rows: u64) -> Vec<(u64, u64, Piece)> {
        let (mut placed, mut begin) = (Vec::new(), 0);
        for piece in &self.pieces {
            let end = begin + piece.items;
            // The first token of a row is the last of the row before.
            let first = (begin.saturating_sub(1)) / stride;
            for row in first..rows {
                let (from, to) = (row * stride, (row + 1) * stride + 1);
                if from >= end {
                    break;
                }
                let (from, to) = (begin.max(from), end.min(to));
                if from < to {
                    let part = Piece {
                        skip: piece.skip + (from - begin),
                        items: to - from,
                        ..*piece
                    };
                    placed.push((row, from - row * stride, part));
                }
            }
            begin = end;
        }
        placed.sort_by_key(|(row, at, _)| (*row, *at));
        placed
    }

    fn side_by_side(&self) -> Vec<(u64, u64, Piece)> {
        let (mut row, mut at, mut placed) = (0, 0, Vec::new());
        for (n, piece) in self.pieces.iter().enumerate() {
            if piece.new_row && n > 0 {
                (row, at) = (row + 1, 0);
            }
            // A row without tokens has a piece that only begins it.
            if piece.items > 0 {
                placed.push((row, at, *piece));
            }
            at += piece.items;
        }
        placed
    }
}

#[cfg(test)]
mod tests;
