//! The pictures of a document as `data:` addresses: pixels as PNG, encoded files as they are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use batchweave_console::output::bytes;
use batchweave_core::tgb::Dtype;

use super::arrays::{Items, SliceArrays};

/// A longer side is shown with fewer pixels.
const SIDE_MAX: usize = 512;
/// Bytes of an encoded picture that is shown, at most.
const FILE_BYTES_MAX: usize = 1 << 20;

/// One picture of a document.
pub(super) struct Picture {
    /// The name of its array, and its size.
    pub(super) caption: String,
    /// Its `data:` address; `None` where the caption says why it is not shown.
    pub(super) address: Option<String>,
}

/// Returns for each array of pixels the one that has their heights and widths.
pub(super) fn sizes<'a, 'p>(slice: &'a SliceArrays<'p>) -> Vec<Option<&'a Items<'p>>> {
    let arrays = slice.arrays.iter();
    arrays.map(|items| sizes_of(slice, items)).collect()
}

/// Returns the array that has as many pixels in each document as `items` has.
fn sizes_of<'a, 'p>(slice: &'a SliceArrays<'p>, items: &Items<'_>) -> Option<&'a Items<'p>> {
    if items.dtype != Dtype::U8 || !matches!(items.shape[..], [1 | 3]) {
        return None;
    }
    let fits = |sizes: &&Items<'_>| {
        let is_size = sizes.dtype == Dtype::I32 && sizes.shape == [2];
        is_size
            && sizes.documents() == items.documents()
            && (0..items.documents()).all(|document| {
                let areas = pairs(sizes.of(document)).map(|(h, w)| h.saturating_mul(w));
                areas.fold(0, usize::saturating_add) == items.count(document)
            })
    };
    slice.arrays.iter().find(fits)
}

/// Returns the first `limit` pictures of a document in an array, and the number of further ones. `None` where the array
/// has none.
pub(super) fn pictures(
    items: &Items<'_>,
    sizes: Option<&Items<'_>>,
    document: usize,
    limit: usize,
) -> Option<(Vec<Picture>, usize)> {
    if items.dtype != Dtype::U8 {
        return None;
    }
    let data = items.of(document);
    let mut rest = data;
    match (items.shape.as_slice(), sizes) {
        (&[height, width, channels @ (1 | 3)], _) if height * width > 0 => {
            let all = data.chunks_exact(items.item_bytes());
            let shown = all
                .take(limit)
                .map(|pixels| of_pixels(items.name, pixels, height, width, channels));
            Some((shown.collect(), items.count(document).saturating_sub(limit)))
        }
        (&[channels], Some(sizes)) => {
            let all = pairs(sizes.of(document));
            let shown: Vec<Picture> = all
                .take(limit)
                .map_while(|(height, width)| {
                    let pixels = rest.split_off(..height * width * channels)?;
                    Some(of_pixels(items.name, pixels, height, width, channels))
                })
                .collect();
            let more = sizes.count(document).saturating_sub(shown.len());
            Some((shown, more))
        }
        (&[], None) if limit == 0 => of_file(items.name, data).map(|_| (Vec::new(), 1)),
        (&[], None) => of_file(items.name, data).map(|one| (vec![one], 0)),
        _ => None,
    }
}

/// Heights and widths; negative ones count as 0.
fn pairs(data: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let (items, _) = data.as_chunks::<8>();
    let side = |bytes: [u8; 4]| usize::try_from(i32::from_le_bytes(bytes)).unwrap_or(0);
    items
        .iter()
        .map(move |&[a, b, c, d, e, f, g, h]| (side([a, b, c, d]), side([e, f, g, h])))
}

fn of_pixels(name: &str, pixels: &[u8], height: usize, width: usize, channels: usize) -> Picture {
    let every = height.max(width).div_ceil(SIDE_MAX).max(1);
    let sampled = match every {
        1 => String::new(),
        _ => format!(", one pixel of {every} in each direction"),
    };
    let caption = format!("{name}, {height} × {width}{sampled}");
    let lines = pixels
        .chunks_exact((width * channels).max(1))
        .step_by(every);
    let sampled: Vec<u8> = lines
        .flat_map(|line| line.chunks_exact(channels).step_by(every))
        .flatten()
        .copied()
        .collect();
    let (height, width) = (height.div_ceil(every), width.div_ceil(every));
    match png(&sampled, height as u32, width as u32, channels) {
        Ok(file) => Picture {
            caption,
            address: Some(address("image/png", &file)),
        },
        Err(why) => Picture {
            caption: format!("{caption}: not shown: {why}"),
            address: None,
        },
    }
}

fn png(
    pixels: &[u8],
    height: u32,
    width: u32,
    channels: usize,
) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(match channels {
        1 => png::ColorType::Grayscale,
        _ => png::ColorType::Rgb,
    });
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(file)
}

/// Returns an encoded picture, by its first bytes.
fn of_file(name: &str, data: &[u8]) -> Option<Picture> {
    let kind = match data {
        [0xff, 0xd8, 0xff, ..] => "jpeg",
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => "png",
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => "webp",
        _ => return None,
    };
    let size = bytes(data.len() as u64);
    let caption = format!("{name}, {kind}, {size}");
    Some(if data.len() > FILE_BYTES_MAX {
        Picture {
            caption: format!(
                "{caption}: not shown: larger than {}",
                bytes(FILE_BYTES_MAX as u64)
            ),
            address: None,
        }
    } else {
        Picture {
            caption,
            address: Some(address(&format!("image/{kind}"), data)),
        }
    })
}

fn address(kind: &str, file: &[u8]) -> String {
    format!("data:{kind};base64,{}", STANDARD.encode(file))
}
