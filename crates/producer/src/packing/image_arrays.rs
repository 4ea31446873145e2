//! The rules for arrays that are made of encoded images.

use batchweave_core::tgb::Dtype;

use super::{ArraySpec, Picture};

/// Longest side of a resized image.
const SIDE_MAX: u64 = 16_384;

impl ArraySpec {
    /// Returns whether a key for encoded images is set.
    pub(crate) fn has_picture(&self) -> bool {
        self.image.is_some() || self.shortest.is_some()
    }

    /// Returns what contradicts the `image` and `shortest` of this array, for a message.
    pub(crate) fn image_fault(&self) -> Option<String> {
        let Some(picture) = self.image else {
            let fault = "has shortest, which is for image = \"pixels\" and \"size\" only";
            return self.shortest.map(|_| fault.to_owned());
        };
        let dtype = self.dtype;
        let shape = &*self.shape;
        let side = |side: u64| (1..=SIDE_MAX).contains(&side);
        let name = picture.name();
        let (fits, form) = match picture {
            Picture::Exact | Picture::Crop | Picture::Pad => (
                dtype == Dtype::U8
                    && matches!(*shape, [height, width, 1 | 3] if side(height) && side(width)),
                "dtype = \"U8\" and shape = [height, width, 3], or 1 for grey, with sides of at most 16384",
            ),
            Picture::Pixels => (
                dtype == Dtype::U8 && matches!(shape, [1 | 3]),
                "dtype = \"U8\" and shape = [3], or [1] for grey: each item is a pixel",
            ),
            Picture::Size => (
                dtype == Dtype::I32 && shape == [2],
                "dtype = \"I32\" and shape = [2], for height and width",
            ),
        };
        if !fits {
            return Some(format!("has image = \"{name}\", which needs {form}"));
        }
        match self.shortest {
            Some(_) if !matches!(picture, Picture::Pixels | Picture::Size) => Some(format!(
                "has shortest with image = \"{name}\", whose size is the shape; remove shortest"
            )),
            Some(shortest) if !side(shortest.into()) => {
                Some("has a shortest side that is not 1 to 16384".to_owned())
            }
            _ => None,
        }
    }
}
