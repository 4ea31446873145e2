//! An encoded image: its header, the limits that hold before it is decoded, and its decoding into 8 bits per channel.

use std::io::Cursor;

use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::metadata::Orientation;
use image::{ColorType, DynamicImage, GrayImage, ImageDecoder, ImageFormat, ImageReader, RgbImage};
use memchr::memmem;

use super::pixels::{PIXELS_MAX, Pixels, Size};

/// Most memory of a decoder with the pixels that it writes, in bytes.
const BYTES_MAX: u64 = 384 << 20;
/// Bytes per pixel that the decoder of WebP has besides those that it writes.
const WEBP_BYTES: u64 = 4;
/// Bytes per pixel and colour of the coefficients of a JPEG, which has up to four colours.
const COEFFICIENT_BYTES: u64 = 2;
const COLOURS_MAX: u8 = 4;

/// An image whose header is read.
pub(super) struct Opened<'a> {
    decoder: Box<dyn ImageDecoder + 'a>,
    orientation: Orientation,
}

/// Reads the header of the image in `data`, and refuses one that can't or may not be decoded.
pub(super) fn open(data: &[u8]) -> Result<Opened<'_>, String> {
    let (mut decoder, besides) = decoder(data)?;
    check_size(decoder.as_ref(), besides)?;
    // An image with a broken tag is kept as it is.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok(Opened {
        decoder,
        orientation,
    })
}

/// Returns the decoder of the image, and its memory in bytes for each pixel, besides the pixels that it writes.
fn decoder(data: &[u8]) -> Result<(Box<dyn ImageDecoder + '_>, u64), String> {
    let reader = ImageReader::new(Cursor::new(data))
        .with_guessed_format()
        .map_err(|why| format!("can't be read: {why}"))?;
    let animation = || Err("is an animation; take one frame of it".to_owned());
    match reader.format() {
        Some(ImageFormat::WebP) => {
            let decoder = WebPDecoder::new(Cursor::new(data)).map_err(broken)?;
            if decoder.has_animation() {
                return animation();
            }
            Ok((Box::new(decoder), WEBP_BYTES))
        }
        Some(ImageFormat::Png) => {
            let decoder = PngDecoder::new(Cursor::new(data)).map_err(broken)?;
            if decoder.is_apng().map_err(broken)? {
                return animation();
            }
            Ok((Box::new(decoder), 0))
        }
        Some(ImageFormat::Jpeg) if !is_whole_jpeg(data) => {
            Err("ends early: a JPEG without its end mark; copy it again".to_owned())
        }
        Some(ImageFormat::Jpeg) => {
            let besides = COEFFICIENT_BYTES * u64::from(kept_colours(data));
            Ok((Box::new(reader.into_decoder().map_err(broken)?), besides))
        }
        _ => Err(format!(
            "is not JPEG, PNG or WebP; it begins with {}",
            head(data)
        )),
    }
}

/// Fails for an image with more pixels, or more memory of its decoder, than are allowed.
fn check_size(decoder: &dyn ImageDecoder, besides: u64) -> Result<(), String> {
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    if pixels > PIXELS_MAX {
        return Err(format!(
            "has {width} x {height} pixels, and at most {PIXELS_MAX} are decoded; make it smaller"
        ));
    }
    let bytes = decoder.total_bytes() + besides * pixels;
    if bytes > BYTES_MAX {
        return Err(format!(
            "has {width} x {height} pixels and takes {} MiB to decode, of {} MiB allowed; make it smaller",
            bytes.div_ceil(1 << 20),
            BYTES_MAX >> 20
        ));
    }
    Ok(())
}

fn broken(why: image::ImageError) -> String {
    format!("can't be decoded: {why}")
}

/// Returns whether a JPEG has an end mark behind its last scan. The decoder fills up what is missing with grey.
fn is_whole_jpeg(data: &[u8]) -> bool {
    // Inside a scan, FF stands before 00 or a mark.
    let scan = memmem::rfind(data, b"\xff\xda");
    scan.is_none_or(|scan| memmem::find(&data[scan..], b"\xff\xd9").is_some())
}

/// Returns the number of colours of a JPEG if its decoder keeps their coefficients until the last scan, as it does for a
/// progressive one and for one with a scan per colour; else 0. Segments that can't be followed count as the former.
fn kept_colours(data: &[u8]) -> u8 {
    let mut colours = COLOURS_MAX;
    let mut progressive = true;
    let mut rest = data.get(2..).unwrap_or_default();
    while let [0xff, mark, high, low, ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(segment) = rest.get(4..2 + length) else {
            break;
        };
        match (mark, segment) {
            (0xc0..=0xc2, [_, _, _, _, _, count, ..]) => {
                (colours, progressive) = (*count, *mark == 0xc2);
            }
            (0xda, [count, ..]) if *count == colours && !progressive => return 0,
            (0xda, _) => return colours,
            _ => {}
        }
        rest = &rest[2 + length..];
    }
    COLOURS_MAX
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
    pub(super) fn upright(&self) -> Size {
        let (width, height) = self.decoder.dimensions();
        match self.orientation {
            Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH => (height, width),
            _ => (width, height),
        }
    }

    /// Returns the pixels of the upright image, as three colours or as grey.
    pub(super) fn decode(self) -> Result<Pixels, String> {
        let size = self.decoder.dimensions();
        let colour = self.decoder.color_type();
        let mut data = vec![0; self.decoder.total_bytes() as usize];
        self.decoder.read_image(&mut data).map_err(broken)?;
        let channels = if colour.has_color() { 3 } else { 1 };
        let data = eight_bits(data, colour, channels);
        upright(data, channels, size, self.orientation)
            .ok_or_else(|| "can't be decoded: it has fewer pixels than its header says".to_owned())
    }
}

/// Returns the first `channels` channels of each pixel; of 16 bits the upper ones, as PIL does.
fn eight_bits(mut data: Vec<u8>, colour: ColorType, channels: usize) -> Vec<u8> {
    let pixel = usize::from(colour.bytes_per_pixel());
    let value = pixel / usize::from(colour.channel_count());
    if pixel == channels {
        return data;
    }
    let upper = if cfg!(target_endian = "little") {
        value - 1
    } else {
        0
    };
    let pixels = data.len() / pixel;
    // In place: a copy would add to the largest memory.
    for at in 0..pixels {
        for channel in 0..channels {
            data[at * channels + channel] = data[at * pixel + channel * value + upper];
        }
    }
    data.truncate(pixels * channels);
    data.shrink_to_fit();
    data
}

/// Turns an image upright; `None` if `data` is not of its size.
fn upright(data: Vec<u8>, channels: usize, size: Size, orientation: Orientation) -> Option<Pixels> {
    if orientation == Orientation::NoTransforms {
        return Some(Pixels::new(size, channels, data));
    }
    let (width, height) = size;
    let mut image: DynamicImage = match channels {
        1 => GrayImage::from_raw(width, height, data)?.into(),
        _ => RgbImage::from_raw(width, height, data)?.into(),
    };
    image.apply_orientation(orientation);
    let size = (image.width(), image.height());
    let data = match channels {
        1 => image.into_luma8().into_raw(),
        _ => image.into_rgb8().into_raw(),
    };
    Some(Pixels::new(size, channels, data))
}
