//! Decoded pixels: their colours, and their resizing as PIL does it.

use std::rc::Rc;

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

/// Most pixels of an image before and after it is resized, so that a small file can't ask for any memory.
pub(super) const PIXELS_MAX: u64 = 1 << 26;

/// The width and the height of an image in pixels.
pub(super) type Size = (u32, u32);

/// Decoded pixels, row by row.
#[derive(Clone)]
pub(super) struct Pixels {
    pub(super) size: Size,
    channels: usize,
    data: Rc<Vec<u8>>,
}

impl Pixels {
    pub(super) fn new(size: Size, channels: usize, data: Vec<u8>) -> Self {
        let data = Rc::new(data);
        Self {
            size,
            channels,
            data,
        }
    }

    /// Returns the pixels as grey or as three colours.
    pub(super) fn with_channels(self, channels: usize) -> Self {
        let data = match (self.channels, channels) {
            (3, 1) => luma(&self.data),
            (1, 3) => self.data.iter().flat_map(|grey| [*grey; 3]).collect(),
            _ => return self,
        };
        Self::new(self.size, channels, data)
    }

    /// Returns the pixels at the size `wanted`; with a `centre`, only of the part around it that has the same form.
    pub(super) fn resized(
        self,
        wanted: Size,
        centre: Option<(f64, f64)>,
    ) -> Result<Vec<u8>, String> {
        if self.size == wanted {
            return Ok(Rc::unwrap_or_clone(self.data));
        }
        if u64::from(wanted.0) * u64::from(wanted.1) > PIXELS_MAX {
            let (width, height) = wanted;
            return Err(format!(
                "would have {width} x {height} pixels, and at most {PIXELS_MAX} are made; lower shortest"
            ));
        }
        // Rows are scaled first, to the height that is wanted.
        if centre.is_none() && u64::from(self.size.0) * u64::from(wanted.1) > PIXELS_MAX {
            let (width, height) = self.size;
            return Err(format!(
                "has {width} x {height} pixels, which is too wide to be stretched to {} x {}; crop it",
                wanted.0, wanted.1
            ));
        }
        let form = match self.channels {
            1 => PixelType::U8,
            _ => PixelType::U8x3,
        };
        let fault = |why: &dyn std::fmt::Display| format!("can't be resized: {why}");
        let from =
            ImageRef::new(self.size.0, self.size.1, &self.data, form).map_err(|why| fault(&why))?;
        let mut to = Image::new(wanted.0, wanted.1, form);
        // Cubic with antialiasing, as PIL's BICUBIC.
        let algorithm = ResizeAlg::Convolution(FilterType::CatmullRom);
        let options = ResizeOptions::new().resize_alg(algorithm);
        let options = match centre {
            Some(centre) => options.fit_into_destination(Some(centre)),
            None => options,
        };
        let resized = Resizer::new().resize(&from, &mut to, &options);
        resized.map_err(|why| fault(&why))?;
        Ok(to.into_vec())
    }

    /// Returns the pixels scaled into the size `wanted`, in the middle of black.
    pub(super) fn padded(self, wanted: Size) -> Result<Vec<u8>, String> {
        let inner = inside(self.size, wanted);
        let channels = self.channels;
        let small = self.resized(inner, None)?;
        let row = |width: u32| width as usize * channels;
        let mut all = vec![0; row(wanted.0) * wanted.1 as usize];
        // Halves are rounded as PIL does.
        let middle = |free: u32| (f64::from(free) / 2.0).round_ties_even() as u32;
        let left = middle(wanted.0 - inner.0);
        let top = middle(wanted.1 - inner.1);
        let rows = all.chunks_exact_mut(row(wanted.0)).skip(top as usize);
        for (to, from) in rows.zip(small.chunks_exact(row(inner.0))) {
            to[row(left)..][..from.len()].copy_from_slice(from);
        }
        Ok(all)
    }
}

/// Returns the largest size of the form of `size` inside `wanted`.
fn inside(size: Size, wanted: Size) -> Size {
    let ratio = |(width, height): Size| f64::from(width) / f64::from(height.max(1));
    let part = |whole: f64, most: u32| (whole.round_ties_even() as u32).clamp(1, most);
    if ratio(size) > ratio(wanted) {
        let height = f64::from(wanted.0) / ratio(size);
        (wanted.0, part(height, wanted.1))
    } else {
        let width = f64::from(wanted.1) * ratio(size);
        (part(width, wanted.0), wanted.1)
    }
}

/// Returns the brightness of colours by ITU-R BT.601, as most tools have it.
pub(super) fn luma(pixels: &[u8]) -> Vec<u8> {
    let one = |pixel: &[u8]| {
        let weights = [19_595, 38_470, 7_471];
        let sum: u32 = pixel
            .iter()
            .zip(weights)
            .map(|(c, w)| u32::from(*c) * w)
            .sum();
        ((sum + 0x8000) >> 16) as u8
    };
    pixels.chunks_exact(3).map(one).collect()
}
