//! `layout`: the arrays in a frame's data. One layout serves all frames of a packed stream.

use serde::{Deserialize, Serialize};

use crate::WireError;

/// Element types, by their safetensors names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Dtype {
    Bool,
    U8,
    I8,
    U16,
    I16,
    F16,
    BF16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
}

impl Dtype {
    /// Returns the bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// A named array within a frame's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayLayout {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    /// First byte, counted from the frame's data.
    pub offset: u64,
}

impl ArrayLayout {
    /// Returns the bytes of the array; `None` when the shape overflows.
    pub fn bytes(&self) -> Option<u64> {
        self.shape
            .iter()
            .try_fold(self.dtype.size(), |n, &d| n.checked_mul(d))
    }
}

/// The arrays of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Bytes of the frame's data.
    pub length: u64,
    pub arrays: Vec<ArrayLayout>,
}

impl Layout {
    /// Checks that every array lies inside the data, is aligned to its items, and has a unique name.
    pub fn check(&self) -> Result<(), WireError> {
        let fail = |reason: String| Err(WireError::body("layout", reason));
        let mut names = std::collections::BTreeSet::new();
        for array in &self.arrays {
            let name = &array.name;
            let end = array.bytes().and_then(|n| n.checked_add(array.offset));
            if end.is_none_or(|end| end > self.length) {
                return fail(format!(
                    "array {name:?} lies outside the frame's {} bytes",
                    self.length
                ));
            }
            if array.offset % array.dtype.size() != 0 {
                return fail(format!("array {name:?} is not aligned to its items"));
            }
            if !names.insert(name) {
                return fail(format!("array {name:?} is listed twice"));
            }
        }
        Ok(())
    }
}
