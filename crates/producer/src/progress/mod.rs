//! Reports of a producer while it works and at its end.
//!
//! - [`InputProgress`]: how far the input is packed; `rate`: speeds over the last minute;
//! - `report`: a line on the terminal, or one in the log every ten seconds; `render`: the former's text;
//! - `ending`: the last lines of the log.

pub(crate) mod ending;
mod rate;
mod render;
pub(crate) mod report;

use std::sync::{Arc, Mutex, PoisonError};

use crate::sources::Inputs;

/// A place in the input, in bytes of the stored files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reached {
    /// Passes over the input that are complete.
    pub(crate) pass: u64,
    /// Index of the file in the input list.
    pub(crate) file: u32,
    /// Bytes of that file.
    pub(crate) bytes: u64,
}

impl Reached {
    /// Returns the beginning of `pass`.
    pub(crate) fn pass(pass: u64) -> Self {
        Self {
            pass,
            ..Self::default()
        }
    }
}

/// How far the input is packed, as the batch stage reports it.
#[derive(Debug)]
pub(crate) struct InputProgress {
    inputs: Arc<Inputs>,
    /// Number of passes; 0 for endless input.
    passes: u64,
    /// The input may grow.
    grows: bool,
    /// `None` before the first chunk.
    at: Mutex<Option<Reached>>,
    /// Set with several sources, whose files are read side by side.
    mixed: Mutex<Option<InputPosition>>,
}

/// The progress at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct InputPosition {
    /// The pass, from 0, and the number of passes; `None` for endless input.
    pub(crate) pass: (u64, Option<u64>),
    /// The number of the file, from 1, and of all files.
    pub(crate) file: (usize, usize),
    /// Name of the file; empty when all known files are read.
    pub(crate) name: String,
    /// Bytes read since the beginning of the input, over all passes.
    pub(crate) bytes: u64,
    /// Bytes of all passes; `None` when the input is endless or grows.
    pub(crate) total: Option<u64>,
    /// Each source of several.
    pub(crate) sources: Vec<SourcePosition>,
    /// Of several sources: documents and tokens that were taken since the start.
    pub(crate) taken: [u64; 2],
}

/// The progress in one source of several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SourcePosition {
    pub(crate) name: String,
    /// The complete passes, and the number of passes; `None` without end.
    pub(crate) pass: (u64, Option<u64>),
    /// Bytes read over all passes, by whole groups.
    pub(crate) bytes: u64,
    /// Bytes of all passes; `None` when it is endless or grows.
    pub(crate) total: Option<u64>,
}

impl InputProgress {
    /// Returns the progress of a producer that reads `inputs` in this number of passes; 0 passes never end.
    pub(crate) fn new(inputs: Arc<Inputs>, passes: u64, grows: bool) -> Self {
        Self {
            inputs,
            passes,
            grows,
            at: Mutex::new(None),
            mixed: Mutex::new(None),
        }
    }

    /// Reports that the batch stage has packed the input up to this place.
    pub(crate) fn reached(&self, at: Reached) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// Reports the position in several sources.
    pub(crate) fn reported(&self, position: InputPosition) {
        *self.mixed.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
    }

    /// Returns the position; `None` before the first chunk.
    pub(crate) fn now(&self) -> Option<InputPosition> {
        let mixed = self.mixed.lock().unwrap_or_else(PoisonError::into_inner);
        if mixed.is_some() {
            return mixed.clone();
        }
        drop(mixed);
        let at = (*self.at.lock().unwrap_or_else(PoisonError::into_inner))?;
        let list = self.inputs.now();
        let size = |n: usize| list.files[n].pin.size;
        let all = list.files.len();
        let before = all.min(at.file as usize);
        let whole: u64 = (0..all).map(size).sum();
        let earlier: u64 = (0..before).map(size).sum();
        let file = list.files.get(before);
        // A file that is read to its end is over, unless it is empty.
        let over = file.is_none_or(|file| at.bytes >= file.pin.size && at.bytes > 0);
        let last = over && before + 1 >= all && self.grows;
        let name = file.map_or("", |file| &file.pin.name);
        Some(InputPosition {
            pass: (at.pass, (self.passes > 0).then_some(self.passes)),
            file: ((before + 1).min(all), all),
            name: if last { String::new() } else { name.to_owned() },
            bytes: at
                .pass
                .saturating_mul(whole)
                .saturating_add(earlier + at.bytes),
            total: (self.passes > 0 && !self.grows).then(|| self.passes.saturating_mul(whole)),
            sources: Vec::new(),
            taken: [0; 2],
        })
    }
}

#[cfg(test)]
mod tests;
