//! A delivered step: its slices, with typed views of their arrays.

use std::sync::Arc;

use batchweave_arena::Element;
use batchweave_wire::{ArrayLayout, Stage};

use crate::frames::Frame;
use crate::{ClientError, State};

/// A rank's part of one global batch.
#[derive(Debug)]
pub struct Batch {
    pub(crate) step: u64,
    pub(crate) slices: Vec<Slice>,
    pub(crate) stage: Option<Arc<Stage>>,
    /// The position after this step has been trained.
    pub(crate) after: State,
}

impl Batch {
    /// Returns the step of the batch.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns the rank's `slices / dp_size` slices in ascending order.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Returns the stage of the batch; `None` for the shape of stream.json.
    pub fn stage(&self) -> Option<&Stage> {
        self.stage.as_deref()
    }

    /// Returns the slices, to be kept or dropped one by one.
    pub fn into_slices(self) -> Vec<Slice> {
        self.slices
    }

    /// Returns the state to save once this step has been trained, even if the reader is ahead by then.
    pub fn state_dict(&self) -> String {
        self.after.to_json()
    }
}

/// One slice. Clones share the frame, which is released when the last one is dropped.
#[derive(Clone)]
pub struct Slice {
    pub(crate) index: u32,
    pub(crate) frame: Arc<Frame>,
}

impl Slice {
    /// Returns the index of the slice in the global batch.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns names, types and shapes of the arrays.
    pub fn arrays(&self) -> &[ArrayLayout] {
        &self.frame.layout.arrays
    }

    /// Returns all bytes of the slice's arrays, as laid out in the arena.
    pub fn bytes(&self) -> &[u8] {
        self.frame.view.bytes()
    }

    /// Returns the elements of an array in place, row-major. `T` must be the array's type; booleans are
    /// read as `u8`, half floats as `u16`.
    pub fn array<T: Element>(&self, name: &str) -> Result<&[T], ClientError> {
        let wanted = |a: &&ArrayLayout| a.name == name && T::DTYPES.contains(&a.dtype);
        let array = self.arrays().iter().find(wanted);
        array
            .and_then(|a| self.elements(a))
            .ok_or_else(|| ClientError::NoArray {
                name: name.to_owned(),
                have: self.describe(),
            })
    }

    fn elements<T: Element>(&self, array: &ArrayLayout) -> Option<&[T]> {
        let count = array.bytes()? / array.dtype.size();
        self.frame.view.elements(array.offset, count)
    }

    fn describe(&self) -> String {
        let one = |a: &ArrayLayout| format!("{} {:?}{:?}", a.name, a.dtype, a.shape);
        self.arrays().iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "slice {} ({})", self.index, self.describe())
    }
}
