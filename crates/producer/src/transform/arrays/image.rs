//! From an encoded image (JPEG, PNG or WebP) to its pixels, turned upright and resized. Runs on the tokenizing threads.

use bytes::Bytes;

use self::encoded::open;
use self::pixels::{Pixels, Size};
use super::wrong;
use crate::packing::{ArraySpec, Picture};
use crate::sources::Reason;

mod encoded;
mod pixels;

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

#[cfg(test)]
mod tests;
