//! Ids in a .npy file: the rows of a table, or one long list that the end token divides into documents.

use std::io::{self, Read};

use super::{IntType, found, read_ids};
use crate::npy::{self, HEADER_BYTES_MAX};
use crate::sources::Reason;
use crate::sources::unit_reader::{FoundUnit, ReadFailure, UnitReader};

/// Number of ids of a list that are read at a time.
const LIST_IDS: u64 = 32 << 10;

/// The places of the ids in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sources) struct NpyLayout {
    kind: IntType,
    /// Number of ids in the file.
    items: u64,
    /// Number of ids per row; `None` for a list.
    row: Option<u64>,
    /// Offset of the first id.
    data_at: u64,
}

impl NpyLayout {
    /// Reads the header at the beginning of a file; the inner error says what is wrong with it.
    pub(in crate::sources) fn read(from: &mut impl Read) -> io::Result<Result<Self, String>> {
        let mut head = Vec::new();
        from.take(12).read_to_end(&mut head)?;
        let Some(at) = npy::data_at(&head) else {
            return Ok(Err(
                "has no header of numpy.save; write it with numpy.save".to_owned()
            ));
        };
        let rest = at.min(HEADER_BYTES_MAX).saturating_sub(head.len());
        from.take(rest as u64).read_to_end(&mut head)?;
        Ok(Self::from_header(&head))
    }

    fn from_header(head: &[u8]) -> Result<Self, String> {
        let header = npy::header(head).ok_or("has no readable header; write it again")?;
        let shape = header
            .shape
            .ok_or("has no readable shape; write it again")?;
        let kind = int_type(&header.descr.unwrap_or_default())?;
        let row = match *shape {
            [_] => None,
            [_, row] if !header.columns_first => Some(row),
            [_, _] => {
                return Err(
                    "is in Fortran order; save numpy.ascontiguousarray of the array".to_owned(),
                );
            }
            _ => {
                return Err(format!(
                    "has the shape {shape:?}; save a list of ids, or a table with a document per row"
                ));
            }
        };
        let items = shape.iter().try_fold(1_u64, |n, &d| n.checked_mul(d));
        let items = items.filter(|n| n.checked_mul(8).is_some());
        Ok(Self {
            kind,
            items: items.ok_or("has an impossible shape; write it again")?,
            row,
            data_at: header.data_at,
        })
    }

    /// Returns the size of the whole file in bytes.
    pub(in crate::sources) fn file_bytes(&self) -> u64 {
        self.data_at.saturating_add(self.items * self.kind.bytes())
    }

    /// Returns the offset of the first id.
    pub(in crate::sources) fn data_at(&self) -> u64 {
        self.data_at
    }

    /// Returns the offset of the document at `unit`, whose place has `offset`.
    pub(in crate::sources) fn offset(&self, unit: u64, offset: u64) -> u64 {
        let by_row = |row: u64| {
            let ids = unit.saturating_mul(row).min(self.items);
            self.data_at + ids * self.kind.bytes()
        };
        self.row.map_or(offset.max(self.data_at), by_row)
    }
}

/// Returns the type of ids by numpy's name of it.
fn int_type(descr: &str) -> Result<IntType, String> {
    Ok(match descr {
        "|u1" => IntType::new(1, false),
        "|i1" => IntType::new(1, true),
        "<u2" => IntType::new(2, false),
        "<i2" => IntType::new(2, true),
        "<u4" => IntType::new(4, false),
        "<i4" => IntType::new(4, true),
        "<u8" => IntType::new(8, false),
        "<i8" => IntType::new(8, true),
        other => {
            return Err(format!(
                "holds items of type {other:?}, not little-endian whole numbers; save array.astype(\"<u4\")"
            ));
        }
    })
}

/// A cursor over the documents of a .npy file.
pub(in crate::sources) struct NpyIds<R> {
    layout: NpyLayout,
    stream: R,
    /// The token that ends a document of a list.
    end: i64,
    /// Most ids of a document.
    ids_max: u64,
    /// Most bytes of a document, for the error.
    limit: u64,
    /// Ids of a list that are read and not yet returned, and the first of these.
    ids: (Vec<i64>, usize),
    /// Number of ids that are not yet read.
    left: u64,
    /// Number of the next document and offset of its first id.
    unit: u64,
    offset: u64,
}

impl<R: Read + Send> NpyIds<R> {
    /// Returns a cursor whose `stream` is at `layout.offset(unit, offset)`, the place of document `unit`.
    pub(in crate::sources) fn new(
        layout: NpyLayout,
        stream: R,
        (unit, offset): (u64, u64),
        end: u32,
        limit: u64,
    ) -> Self {
        let offset = layout.offset(unit, offset);
        Self {
            stream,
            end: end.into(),
            ids_max: limit / 8,
            limit,
            ids: (Vec::new(), 0),
            left: layout.items
                - ((offset - layout.data_at) / layout.kind.bytes()).min(layout.items),
            unit,
            offset,
            layout,
        }
    }

    fn too_long(&self) -> Reason {
        Reason::TooLong { limit: self.limit }
    }

    fn row(&mut self, row: u64, owned: bool) -> io::Result<Result<Vec<i64>, Reason>> {
        let mut ids = Vec::new();
        self.left = self.left.saturating_sub(row);
        if owned && row <= self.ids_max {
            read_ids(&mut self.stream, self.layout.kind, row, &mut ids)?;
            return Ok(Ok(ids));
        }
        let bytes = row * self.layout.kind.bytes();
        let skipped = io::copy(&mut self.stream.by_ref().take(bytes), &mut io::sink())?;
        if skipped < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Err(self.too_long()))
    }

    /// Returns the ids up to the next end token and the number of ids that were read, the end token included.
    fn until_end(&mut self, owned: bool) -> io::Result<(Result<Vec<i64>, Reason>, u64)> {
        let (mut document, mut length) = (Vec::new(), 0_u64);
        loop {
            if !self.has_ids()? {
                break;
            }
            let rest = self.ids.0.get(self.ids.1..).unwrap_or_default();
            let found = rest.iter().position(|&id| id == self.end);
            let part = &rest[..found.unwrap_or(rest.len())];
            length += part.len() as u64;
            if owned && length <= self.ids_max {
                document.extend_from_slice(part);
            } else {
                document = Vec::new();
            }
            self.ids.1 += part.len() + usize::from(found.is_some());
            if found.is_some() {
                return Ok((self.within_limit(document, length), length + 1));
            }
        }
        Ok((self.within_limit(document, length), length))
    }

    /// Reads more ids where all are returned. Returns whether there are some.
    fn has_ids(&mut self) -> io::Result<bool> {
        if self.ids.1 < self.ids.0.len() {
            return Ok(true);
        }
        let now = self.left.min(LIST_IDS);
        if now == 0 {
            return Ok(false);
        }
        self.ids.0.clear();
        self.ids.1 = 0;
        read_ids(&mut self.stream, self.layout.kind, now, &mut self.ids.0)?;
        self.left -= now;
        Ok(true)
    }

    /// Returns a document of this many ids, or the error for one that is too long.
    fn within_limit(&self, document: Vec<i64>, length: u64) -> Result<Vec<i64>, Reason> {
        if length > self.ids_max {
            return Err(self.too_long());
        }
        Ok(document)
    }
}

impl<R: Read + Send> UnitReader for NpyIds<R> {
    fn next(&mut self, owned: &dyn Fn(u64) -> bool) -> Result<Option<FoundUnit>, ReadFailure> {
        loop {
            if self.left == 0 && self.ids.1 == self.ids.0.len() {
                return Ok(None);
            }
            let (unit, offset) = self.place();
            let ours = owned(unit);
            let (ids, read) = match self.layout.row {
                Some(row) => (self.row(row, ours).map_err(ReadFailure::Io)?, row),
                None => self.until_end(ours).map_err(ReadFailure::Io)?,
            };
            self.unit += 1;
            self.offset += read * self.layout.kind.bytes();
            // A list has nothing between two end tokens; like a blank line, that is left out.
            let blank =
                self.layout.row.is_none() && read <= 1 && ids.as_ref().is_ok_and(Vec::is_empty);
            if ours && !blank {
                return Ok(Some(found(self.layout.kind, unit, offset, ids)));
            }
        }
    }

    fn place(&self) -> (u64, u64) {
        // As places at the beginning of a file have it.
        let offset = if self.unit == 0 || self.layout.row.is_some() {
            0
        } else {
            self.offset
        };
        (self.unit, offset)
    }
}

#[cfg(test)]
mod tests;
