//! Reads a source in the order of its files, unit after unit.

use std::sync::atomic::Ordering;

use super::read::Kind;
use super::{FileReader, InputList, Place, SourceError, SourcePlan};

impl<'a> FileReader<'a> {
    /// Opens the first file of `plan` at or behind `from`; `None` when `list` has no more.
    pub(crate) fn open_next(
        plan: &'a SourcePlan,
        list: &'a InputList,
        mut from: Place,
    ) -> Result<Option<Self>, SourceError> {
        while let Some(file) = list.files.get(from.file as usize) {
            if plan.holds(file) {
                return Self::open_in(list, &plan.options, from);
            }
            from = Place::of_file(from.file + 1);
        }
        Ok(None)
    }

    /// Returns the number of the file in its list.
    pub(crate) fn file(&self) -> u32 {
        self.at.file
    }

    /// Returns the bytes of the stored file up to the next unit: exact for lines and tars, by the number of rows for
    /// Parquet.
    pub fn consumed(&self) -> u64 {
        let size = self.file.pin.size;
        let read = match &self.kind {
            Kind::Done | Kind::Failed(_) => size,
            Kind::Text(_) => 0,
            Kind::Lines(_) | Kind::Ids(_) | Kind::Shard(_) => match &self.packed {
                Some(count) => count.load(Ordering::Relaxed),
                None => self.at.offset,
            },
            Kind::Parquet(rows) => {
                let share = u128::from(size) * u128::from(self.at.unit);
                (share / u128::from(rows.total().max(1))) as u64
            }
        };
        read.min(size)
    }

    /// Returns the place from which another reader continues after the last unit, which was of the file number `file`.
    pub(crate) fn after(&self, file: u32) -> Place {
        match self.kind {
            Kind::Done => Place::of_file(file + 1),
            _ => self.at,
        }
    }
}
