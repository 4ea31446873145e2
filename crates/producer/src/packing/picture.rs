//! How an array is made of an encoded image.

use serde::{Deserialize, Serialize};

/// The array that is made of an encoded image: pixels of U8 by row, column and channel, or the size of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Picture {
    /// Stretched to the item's height and width.
    Exact,
    /// Scaled to cover height and width, and cut around the centre.
    Crop,
    /// Scaled to fit into height and width, centred on black.
    Pad,
    /// Pixels of any number, which are the items.
    Pixels,
    /// Height and width of [`Self::Pixels`].
    Size,
}

impl Picture {
    /// Returns the name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Crop => "crop",
            Self::Pad => "pad",
            Self::Pixels => "pixels",
            Self::Size => "size",
        }
    }
}
