//! Reads a source in the order of its files, unit after unit.

use super::read::State;
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

    /// Returns the place from which another reader continues after the last unit, which was of the file number `file`.
    pub(crate) fn after(&self, file: u32) -> Place {
        match self.state {
            State::Done => Place::of_file(file + 1),
            _ => self.at,
        }
    }
}
