//! From an encoded image (JPEG, PNG or WebP) to its pixels, turned upright and resized. Runs on the tokenizing threads.

use std::rc::Rc;

use bytes::Bytes;
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use self::encoded::open;
use super::wrong;
use crate::packing::{ArraySpec, Picture};
use crate::sources::Reason;

mod encoded;

/// Most pixels of an image before and after it is resized, so that a small file can't ask for any memory.
const PIXELS_MAX: u64 = 1 << 26;

/// The width and the height of an image in pixels.
type Size = (u32, u32);

/// Replaces each encoded image in `arrays` by the items of the array in `specs`. An image in several arrays is decoded once.
pub(super) fn decode(specs: &[ArraySpec], arrays: &mut [Bytes]) -> Result<(), Reason> {
    for (data, users) in distinct(specs, arrays) {
        let mut source = Source {
            data: &data,
            pixels: None,
            users: users.iter().filter(|n| needs_pixels(&specs[**n])).count(),
        };
        for n in users {
            let made = source.array(&specs[n]);
            arrays[n] = made.map_err(|detail| wrong(&specs[n].name, detail))?.into();
        }
    }
    Ok(())
}

/// Takes the encoded images out of `arrays`, and returns each with the places of the arrays that it is for.
fn distinct(specs: &[ArraySpec], arrays: &mut [Bytes]) -> Vec<(Bytes, Vec<usize>)> {
    let mut found: Vec<(Bytes, Vec<usize>)> = Vec::new();
    for (n, (spec, array)) in specs.iter().zip(arrays).enumerate() {
        if spec.image.is_none() {
            continue;
        }
        let data = std::mem::take(array);
        match found.iter_mut().find(|(other, _)| *other == data) {
            Some((_, users)) => users.push(n),
            None => found.push((data, vec![n])),
        }
    }
    found
}

/// Returns whether the array needs more of an image than its header.
fn needs_pixels(spec: &ArraySpec) -> bool {
    spec.image.is_some_and(|picture| picture != Picture::Size)
}

/// An encoded image, with its pixels while arrays need them.
struct Source<'a> {
    data: &'a [u8],
    pixels: Option<Pixels>,
    /// Number of arrays that still need the pixels.
    users: usize,
}

impl Source<'_> {
    /// Returns the items of the array `spec`.
    fn array(&mut self, spec: &ArraySpec) -> Result<Vec<u8>, String> {
        if !needs_pixels(spec) {
            let (width, height) = scaled(open(self.data)?.upright(), spec.shortest);
            return Ok([height, width]
                .map(|side| side.cast_signed().to_le_bytes())
                .concat());
        }
        let channels = if spec.shape.last() == Some(&1) { 1 } else { 3 };
        let image = self.pixels()?.with_channels(channels);
        let side = |n: usize| spec.shape.get(n).map_or(1, |side| *side as u32);
        let wanted = (side(1), side(0));
        match spec.image {
            Some(Picture::Exact) => image.resized(wanted, None),
            Some(Picture::Crop) => image.resized(wanted, Some((0.5, 0.5))),
            Some(Picture::Pad) => image.padded(wanted),
            Some(Picture::Pixels | Picture::Size) | None => {
                let wanted = scaled(image.size, spec.shortest);
                image.resized(wanted, None)
            }
        }
    }

    /// Returns the pixels, which the last array gets without a copy.
    fn pixels(&mut self) -> Result<Pixels, String> {
        let pixels = match self.pixels.take() {
            Some(pixels) => pixels,
            None => open(self.data)?.decode()?,
        };
        self.users -= 1;
        self.pixels = (self.users > 0).then(|| pixels.clone());
        Ok(pixels)
    }
}

/// Returns the brightness of colours by ITU-R BT.601, as most tools have it.
fn luma(pixels: &[u8]) -> Vec<u8> {
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

/// Returns the size at which the shorter side is `shortest`.
fn scaled((width, height): Size, shortest: Option<u32>) -> Size {
    let Some(shortest) = shortest else {
        return (width, height);
    };
    let longer = |long: u32, short: u32| {
        let exact = f64::from(long) * f64::from(shortest) / f64::from(short.max(1));
        exact.round_ties_even().clamp(1.0, f64::from(u32::MAX)) as u32
    };
    if width <= height {
        (shortest, longer(height, width))
    } else {
        (longer(width, height), shortest)
    }
}

/// Decoded pixels, row by row.
#[derive(Clone)]
struct Pixels {
    size: Size,
    channels: usize,
    data: Rc<Vec<u8>>,
}

impl Pixels {
    fn new(size: Size, channels: usize, data: Vec<u8>) -> Self {
        let data = Rc::new(data);
        Self {
            size,
            channels,
            data,
        }
    }

    /// Returns the pixels as grey or as three colours.
    fn with_channels(self, channels: usize) -> Self {
        let data = match (self.channels, channels) {
            (3, 1) => luma(&self.data),
            (1, 3) => self.data.iter().flat_map(|grey| [*grey; 3]).collect(),
            _ => return self,
        };
        Self::new(self.size, channels, data)
    }

    /// Returns the pixels at the size `wanted`; with a `centre`, only of the part around it that has the same form.
    fn resized(self, wanted: Size, centre: Option<(f64, f64)>) -> Result<Vec<u8>, String> {
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
    fn padded(self, wanted: Size) -> Result<Vec<u8>, String> {
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

#[cfg(test)]
mod tests;
