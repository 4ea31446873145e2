//! Opens files that hold nothing but ids, for `read`.

use bytes::Bytes;

use super::columns::ReadFailure;
use super::ids::IdRows;
use super::ids::megatron::MegatronIds;
use super::ids::npy::{NpyIds, NpyLayout};
use super::read::{FileReader, Kind};
use super::{
    Cell, InputFile, InputList, Place, ReadOptions, Reason, SourceError, Unit, decompress,
};

impl<'a> FileReader<'a> {
    /// Opens one of Megatron's files. The file of a pair that is listed first has its documents, and the other one none:
    /// files before a restart's point may change, and both of a pair must not.
    pub(super) fn open_pair(
        list: &'a InputList,
        file: &'a InputFile,
        options: &'a ReadOptions,
        from: Place,
    ) -> Result<Self, SourceError> {
        let mut reader = Self::closed(file, options, from);
        let name = file.pin.name.as_str();
        let (partner, is_index) = if let Some(stem) = name.strip_suffix(".idx") {
            (format!("{stem}.bin"), true)
        } else if let Some(stem) = name.strip_suffix(".bin") {
            (format!("{stem}.idx"), false)
        } else {
            return Err(reader.unpaired("neither a .idx nor a .bin file"));
        };
        let at = from.file as usize;
        let is_partner = |n: &usize| list.files.get(*n).is_some_and(|f| f.pin.name == partner);
        // Sorted names have the two next to each other.
        let near = [at.wrapping_sub(1), at + 1].into_iter().find(is_partner);
        let Some(n) = near.or_else(|| (0..list.files.len()).find(is_partner)) else {
            return Err(reader.unpaired(&format!("{partner} is not in the input")));
        };
        let Some(partner) = list.files.get(n).filter(|_| n > at) else {
            return Ok(reader);
        };
        let (index, data) = if is_index {
            (file, partner)
        } else {
            (partner, file)
        };
        let limit = options.max_document_bytes;
        match MegatronIds::open(index, data, from.unit, limit) {
            Ok(Some(rows)) => reader.kind = Kind::Ids(Box::new(rows)),
            Ok(None) => {}
            Err(ReadFailure::Content(reason)) => reader.kind = Kind::Failed(reason),
            Err(ReadFailure::Io(why)) => return Err(reader.unreadable(why)),
        }
        Ok(reader)
    }

    pub(super) fn unpaired(&self, detail: &str) -> SourceError {
        SourceError::Megatron {
            file: self.file.pin.name.clone(),
            detail: detail.to_owned(),
        }
    }

    /// Opens a .npy file of ids.
    pub(super) fn open_npy(&mut self, end_token: u32) -> Result<(), SourceError> {
        self.kind = match self.npy(end_token) {
            Ok(rows) => Kind::Ids(rows),
            Err(ReadFailure::Content(reason)) => {
                self.check_size()?;
                Kind::Failed(reason)
            }
            Err(ReadFailure::Io(why)) => Kind::Failed(self.damage(why)?),
        };
        Ok(())
    }

    fn npy(&mut self, end_token: u32) -> Result<Box<dyn IdRows>, ReadFailure> {
        let mut stream = self.open_stream_at(0).map_err(ReadFailure::Io)?;
        let layout = NpyLayout::read(&mut stream).map_err(ReadFailure::Io)?;
        let layout = layout.map_err(|detail| Reason::Npy { detail })?;
        let (wanted, size) = (layout.file_bytes(), self.file.pin.size);
        if self.codec == decompress::Codec::Plain && wanted != size {
            let detail =
                format!("has {size} bytes and needs {wanted} for its shape; write it again");
            return Err(Reason::Npy { detail }.into());
        }
        let place = (self.at.unit, self.at.offset);
        let at = layout.offset(place.0, place.1);
        if at != layout.data_at() {
            stream = self.open_stream_at(at).map_err(ReadFailure::Io)?;
        }
        Ok(Box::new(NpyIds::new(
            layout,
            stream,
            place,
            end_token,
            self.options.max_document_bytes,
        )))
    }

    /// Returns the next unit of ids that belongs to this producer.
    pub(super) fn ids(
        &mut self,
        mut rows: Box<dyn IdRows + 'a>,
    ) -> Result<Option<Unit>, SourceError> {
        let (share, file) = (self.options.share, self.at.file);
        let row = rows.next(&|unit| share.owns(file, unit));
        (self.at.unit, self.at.offset) = rows.place();
        match row {
            Ok(None) => Ok(None),
            Ok(Some(row)) => {
                self.kind = Kind::Ids(rows);
                let place = Place {
                    file,
                    unit: row.unit,
                    offset: row.offset,
                };
                let (raw, cells) = match row.ids {
                    Ok(ids) => (Ok(Bytes::new()), vec![Cell::Ints(ids)]),
                    Err(reason) => (Err(reason), Vec::new()),
                };
                Ok(Some(Unit {
                    place,
                    kind: self.unit_kind,
                    raw,
                    cells,
                }))
            }
            Err(ReadFailure::Content(reason)) => {
                self.check_size()?;
                Ok(self.bad(reason))
            }
            Err(ReadFailure::Io(why)) => self.failed(why),
        }
    }
}
