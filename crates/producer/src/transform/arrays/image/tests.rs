//! Tests with images that are encoded here; python/tests/test_images.py compares with PIL.

use batchweave_core::tgb::Dtype;
use image::{ImageBuffer, Luma, LumaA, Rgb, RgbImage, Rgba};

use super::*;

fn spec(shape: &[u64]) -> ArraySpec {
    ArraySpec {
        name: "image".into(),
        from: String::new(),
        dtype: Dtype::U8,
        shape: shape.to_vec(),
        base64: false,
        image: Some(Picture::Pixels),
        path: false,
        shortest: None,
    }
}

/// A picture in which each pixel says where it is.
fn placed(width: u32, height: u32) -> RgbImage {
    ImageBuffer::from_fn(width, height, |x, y| Rgb([x as u8, y as u8, (x ^ y) as u8]))
}

fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image.into().write_to(&mut file, format).unwrap();
    file.into_inner()
}

fn why(picture: Picture, data: &[u8]) -> String {
    array(&spec(&[3]), picture, data).unwrap_err().to_string()
}

fn size(data: &[u8], shortest: Option<u32>) -> [i32; 2] {
    let spec = ArraySpec {
        dtype: Dtype::I32,
        shortest,
        ..spec(&[2])
    };
    let bytes = array(&spec, Picture::Size, data).unwrap();
    let side = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    [side(0), side(4)]
}

#[test]
fn pixels_without_loss_are_those_of_the_image() {
    let image = placed(7, 5);
    for format in [ImageFormat::Png, ImageFormat::WebP] {
        let data = encoded(image.clone(), format);
        assert_eq!(
            array(&spec(&[3]), Picture::Pixels, &data).unwrap(),
            *image.as_raw()
        );
        assert_eq!(size(&data, None), [5, 7]);
    }
}

#[test]
fn other_colours_become_rgb_or_grey() {
    let png = |image: DynamicImage| encoded(image, ImageFormat::Png);
    let pixel = |shape: &[u64], data: &[u8]| array(&spec(shape), Picture::Pixels, data).unwrap();
    let grey = png(ImageBuffer::from_pixel(1, 1, Luma([77_u8])).into());
    assert_eq!(pixel(&[3], &grey), [77, 77, 77]);
    assert_eq!(pixel(&[1], &grey), [77]);
    let deep = png(ImageBuffer::from_pixel(1, 1, Rgb([0x1234_u16, 0xffff, 0])).into());
    assert_eq!(pixel(&[3], &deep), [0x12, 255, 0]);
    // Alpha is left out, as PIL's convert("RGB") does.
    let clear = png(ImageBuffer::from_pixel(1, 1, Rgba([9_u8, 8, 7, 0])).into());
    assert_eq!(pixel(&[3], &clear), [9, 8, 7]);
    let clear = png(ImageBuffer::from_pixel(1, 1, LumaA([9_u8, 0])).into());
    assert_eq!(pixel(&[1], &clear), [9]);
    let colour = png(ImageBuffer::from_pixel(1, 1, Rgb([200_u8, 100, 50])).into());
    assert_eq!(pixel(&[1], &colour), [124]);
}

#[test]
fn an_image_is_cropped_padded_or_stretched_into_the_shape() {
    let red = ImageBuffer::from_pixel(40, 20, Rgb([255_u8, 0, 0]));
    let data = encoded(red, ImageFormat::Png);
    let make = |picture| array(&spec(&[10, 10, 3]), picture, &data).unwrap();
    assert_eq!(make(Picture::Exact), [255, 0, 0].repeat(100));
    assert_eq!(make(Picture::Crop), [255, 0, 0].repeat(100));
    let padded = make(Picture::Pad);
    let rows: Vec<u8> = padded.chunks(30).map(|row| row[0]).collect();
    assert_eq!(rows, [0, 0, 255, 255, 255, 255, 255, 0, 0, 0]);
    // The centre is kept: columns 10 to 29 of 40.
    let data = encoded(placed(40, 20), ImageFormat::Png);
    let cropped = array(&spec(&[20, 20, 3]), Picture::Crop, &data).unwrap();
    assert_eq!((cropped[0], cropped[19 * 3]), (10, 29));
}

#[test]
fn the_shorter_side_decides_the_size() {
    let data = encoded(placed(30, 20), ImageFormat::Png);
    assert_eq!(size(&data, Some(10)), [10, 15]);
    let spec = ArraySpec {
        shortest: Some(10),
        ..spec(&[3])
    };
    let pixels = array(&spec, Picture::Pixels, &data).unwrap();
    assert_eq!(pixels.len(), 10 * 15 * 3);
    let high = encoded(placed(3, 200), ImageFormat::Png);
    assert_eq!(size(&high, Some(7)), [467, 7]);
}

/// A JPEG with the orientation in an Exif segment behind its first two bytes.
fn turned(image: RgbImage, orientation: u8) -> Vec<u8> {
    let data = encoded(image, ImageFormat::Jpeg);
    let tag = [0x12, 0x01, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0];
    let exif = [&b"Exif\0\0II*\0\x08\0\0\0\x01\0"[..], &tag, &[0; 4]].concat();
    let length = (exif.len() as u16 + 2).to_be_bytes();
    [&data[..2], &[0xff, 0xe1], &length, &exif, &data[2..]].concat()
}

#[test]
fn an_image_stands_upright() {
    let half: RgbImage = ImageBuffer::from_fn(16, 8, |x, _| Rgb([if x < 8 { 255 } else { 0 }; 3]));
    // 6: turned to the left; the left half comes on top.
    let data = turned(half.clone(), 6);
    assert_eq!(size(&data, None), [16, 8]);
    let pixels = array(&spec(&[1]), Picture::Pixels, &data).unwrap();
    assert!(pixels[..7 * 8].iter().all(|p| *p > 200) && pixels[9 * 8..].iter().all(|p| *p < 50));
    let data = turned(half, 3);
    assert_eq!(size(&data, None), [8, 16]);
    let pixels = array(&spec(&[1]), Picture::Pixels, &data).unwrap();
    assert!(pixels[0] < 50 && pixels[15] > 200);
}

/// A PNG whose header asks for a size; nothing else of it is there.
fn header(width: u32, height: u32) -> Vec<u8> {
    let mut data = encoded(placed(1, 1), ImageFormat::Png);
    data[16..20].copy_from_slice(&width.to_be_bytes());
    data[20..24].copy_from_slice(&height.to_be_bytes());
    let mut crc = flate2::Crc::new();
    crc.update(&data[12..29]);
    data[29..33].copy_from_slice(&crc.sum().to_be_bytes());
    data
}

#[test]
fn bad_images_say_why() {
    let says = |data: &[u8], what: &str| {
        let why = why(Picture::Pixels, data);
        assert!(
            why.starts_with("array \"image\" ") && why.contains(what),
            "{why}"
        );
    };
    says(b"", "it is empty");
    says(
        b"GIF89a and more",
        "is not JPEG, PNG or WebP; it begins with GIF89a a",
    );
    says(
        &header(60_000, 60_000),
        "has 60000 x 60000 pixels, and at most 67108864",
    );
    for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP] {
        let data = encoded(placed(64, 64), format);
        for end in (20..data.len() - 20).step_by(37) {
            let why = why(Picture::Pixels, &data[..end]);
            let known = ["can't be decoded", "ends early"];
            assert!(known.iter().any(|what| why.contains(what)), "{end}: {why}");
        }
    }
    let animated = [
        &b"RIFF\x2e\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x01\0\0\x01\0\0ANIM\x06\0\0\0\0\0\0\0\0\0"[..],
        b"ANMF\0\0\0\0",
    ];
    let why = why(Picture::Pixels, &animated.concat());
    assert!(
        why.contains("animation") || why.contains("can't be decoded"),
        "{why}"
    );
}

#[test]
fn specs_that_contradict_themselves_are_found() {
    let fault = |picture, dtype, shape: &[u64], shortest| {
        let spec = ArraySpec {
            dtype,
            image: picture,
            shortest,
            ..spec(shape)
        };
        spec.image_fault().unwrap_or_default()
    };
    let none = [
        fault(Some(Picture::Crop), Dtype::U8, &[224, 224, 3], None),
        fault(Some(Picture::Pad), Dtype::U8, &[1, 16_384, 1], None),
        fault(Some(Picture::Pixels), Dtype::U8, &[1], Some(256)),
        fault(Some(Picture::Size), Dtype::I32, &[2], Some(256)),
        fault(None, Dtype::F32, &[7], None),
    ];
    assert_eq!(none, [const { String::new() }; 5]);
    let says = |fault: String, what: &str| assert!(fault.contains(what), "{fault}");
    says(
        fault(Some(Picture::Crop), Dtype::U8, &[3, 224, 224], None),
        "shape = [height, width, 3]",
    );
    says(
        fault(Some(Picture::Exact), Dtype::F32, &[9, 9, 3], None),
        "dtype = \"U8\"",
    );
    says(
        fault(Some(Picture::Pixels), Dtype::U8, &[], None),
        "each item is a pixel",
    );
    says(
        fault(Some(Picture::Size), Dtype::U8, &[2], None),
        "dtype = \"I32\"",
    );
    says(
        fault(Some(Picture::Crop), Dtype::U8, &[9, 9, 3], Some(4)),
        "remove shortest",
    );
    says(
        fault(Some(Picture::Pixels), Dtype::U8, &[3], Some(0)),
        "not 1 to 16384",
    );
    says(
        fault(None, Dtype::U8, &[3], Some(4)),
        "has shortest, which is for",
    );
}
