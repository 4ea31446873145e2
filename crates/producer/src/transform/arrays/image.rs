//! From an encoded image (JPEG, PNG or WebP) to its pixels, turned upright and resized. Runs on the tokenizing threads.

use std::io::Cursor;

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::codecs::webp::WebPDecoder;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader};
use memchr::memmem;

use super::wrong;
use crate::packing::{ArraySpec, Picture};
use crate::sources::Reason;

/// Most pixels of an image before it is resized, so that a small file can't ask for any memory.
const PIXELS_MAX: u64 = 1 << 26;

/// The width and the height of an image in pixels.
type Size = (u32, u32);

/// Returns the items of the array `spec` of the image in `data`.
pub(super) fn array(spec: &ArraySpec, picture: Picture, data: &[u8]) -> Result<Vec<u8>, Reason> {
    make(spec, picture, data).map_err(|detail| wrong(&spec.name, detail))
}

fn make(spec: &ArraySpec, picture: Picture, data: &[u8]) -> Result<Vec<u8>, String> {
    let opened = open(data)?;
    if picture == Picture::Size {
        let (width, height) = scaled(opened.upright(), spec.shortest);
        return Ok([height, width]
            .map(|side| side.cast_signed().to_le_bytes())
            .concat());
    }
    let channels = if spec.shape.last() == Some(&1) { 1 } else { 3 };
    let image = opened.decode(channels)?;
    let side = |n: usize| spec.shape.get(n).map_or(1, |side| *side as u32);
    let wanted = (side(1), side(0));
    match picture {
        Picture::Exact => image.resized(wanted, None),
        Picture::Crop => image.resized(wanted, Some((0.5, 0.5))),
        Picture::Pad => image.padded(wanted),
        Picture::Pixels | Picture::Size => {
            let wanted = scaled(image.size, spec.shortest);
            image.resized(wanted, None)
        }
    }
}

/// An image whose header is read.
struct Opened<'a> {
    decoder: Box<dyn ImageDecoder + 'a>,
    orientation: Orientation,
}

fn open(data: &[u8]) -> Result<Opened<'_>, String> {
    let broken = |why: image::ImageError| format!("can't be decoded: {why}");
    let reader = ImageReader::new(Cursor::new(data)).with_guessed_format();
    let reader = reader.map_err(|why| format!("can't be read: {why}"))?;
    let mut decoder: Box<dyn ImageDecoder + '_> = match reader.format() {
        Some(ImageFormat::WebP) => {
            let decoder = WebPDecoder::new(Cursor::new(data)).map_err(broken)?;
            if decoder.has_animation() {
                return Err("is an animation; take one frame of it".to_owned());
            }
            Box::new(decoder)
        }
        Some(ImageFormat::Jpeg) if !is_whole_jpeg(data) => {
            return Err("ends early: a JPEG without its end mark; copy it again".to_owned());
        }
        Some(ImageFormat::Jpeg | ImageFormat::Png) => {
            Box::new(reader.into_decoder().map_err(broken)?)
        }
        _ => {
            return Err(format!(
                "is not JPEG, PNG or WebP; it begins with {}",
                head(data)
            ));
        }
    };
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > PIXELS_MAX {
        return Err(format!(
            "has {width} x {height} pixels, and at most {PIXELS_MAX} are decoded; make it smaller"
        ));
    }
    // An image with a broken tag is kept as it is.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok(Opened {
        decoder,
        orientation,
    })
}

/// Returns whether a JPEG has an end mark behind its last scan. The decoder fills up what is missing with grey.
fn is_whole_jpeg(data: &[u8]) -> bool {
    // Inside a scan, FF stands before 00 or a mark.
    let scan = memmem::rfind(data, b"\xff\xda");
    scan.is_none_or(|scan| memmem::find(&data[scan..], b"\xff\xd9").is_some())
}

/// Returns the first bytes, for a message.
fn head(data: &[u8]) -> String {
    if data.is_empty() {
        return "nothing: it is empty".to_owned();
    }
    data[..data.len().min(8)].escape_ascii().to_string()
}

impl Opened<'_> {
    /// Returns the size of the upright image.
    fn upright(&self) -> Size {
        let (width, height) = self.decoder.dimensions();
        match self.orientation {
            Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH => (height, width),
            _ => (width, height),
        }
    }

    fn decode(self, channels: usize) -> Result<Pixels, String> {
        let orientation = self.orientation;
        let image = DynamicImage::from_decoder(self.decoder);
        let mut image = image.map_err(|why| format!("can't be decoded: {why}"))?;
        image.apply_orientation(orientation);
        let size = (image.width(), image.height());
        let grey = !image.color().has_color();
        let data = match channels {
            1 if grey => image.into_luma8().into_raw(),
            1 => luma(&image.into_rgb8()),
            _ => image.into_rgb8().into_raw(),
        };
        Ok(Pixels {
            size,
            channels,
            data,
        })
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
struct Pixels {
    size: Size,
    channels: usize,
    data: Vec<u8>,
}

impl Pixels {
    /// Returns the pixels at the size `wanted`; with a `centre`, only of the part around it that has the same form.
    fn resized(self, wanted: Size, centre: Option<(f64, f64)>) -> Result<Vec<u8>, String> {
        if self.size == wanted {
            return Ok(self.data);
        }
        if u64::from(wanted.0) * u64::from(wanted.1) > PIXELS_MAX {
            let (width, height) = wanted;
            return Err(format!(
                "would have {width} x {height} pixels, and at most {PIXELS_MAX} are made; lower shortest"
            ));
        }
        let form = match self.channels {
            1 => PixelType::U8,
            _ => PixelType::U8x3,
        };
        let fault = |why: &dyn std::fmt::Display| format!("can't be resized: {why}");
        let from = ImageRef::new(self.size.0, self.size.1, &self.data, form);
        let from = from.map_err(|why| fault(&why))?;
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
        let (left, top) = (middle(wanted.0 - inner.0), middle(wanted.1 - inner.1));
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
