//! Tests with images that are encoded here; python/tests/test_images.py compares with PIL.

use std::io::Cursor;

use batchweave_core::tgb::Dtype;
use image::{DynamicImage, ImageBuffer, ImageFormat, Luma, LumaA, Rgb, RgbImage, Rgba};

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

/// Returns the array `spec` of one image.
fn array(spec: &ArraySpec, picture: Picture, data: &[u8]) -> Result<Vec<u8>, Reason> {
    let spec = ArraySpec {
        image: Some(picture),
        ..spec.clone()
    };
    let mut arrays = [Bytes::copy_from_slice(data)];
    decode(&[spec], &mut arrays)?;
    Ok(arrays.concat())
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
fn pixels_without_loss_match_the_image() {
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
    // Of 16 bits the upper ones are taken, as PIL does; rounding gives 0x13 and 1.
    let deep = png(ImageBuffer::from_pixel(2, 1, Rgb([0x12ff_u16, 0xffff, 0x00ff])).into());
    assert_eq!(pixel(&[3], &deep), [0x12, 255, 0].repeat(2));
    let deep = png(ImageBuffer::from_pixel(2, 1, Rgba([0x12ff_u16, 0x80, 0xfeff, 7])).into());
    assert_eq!(pixel(&[3], &deep), [0x12, 0, 0xfe].repeat(2));
    let deep = png(ImageBuffer::from_pixel(2, 1, Luma([0x12ff_u16])).into());
    assert_eq!(pixel(&[3], &deep), [0x12; 6]);
    assert_eq!(pixel(&[1], &deep), [0x12; 2]);
    let deep = png(ImageBuffer::from_pixel(2, 1, LumaA([0x12ff_u16, 0])).into());
    assert_eq!(pixel(&[1], &deep), [0x12; 2]);
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

/// A PNG whose header asks for a size, and the pixels of another one.
fn header(image: impl Into<DynamicImage>, width: u32, height: u32) -> Vec<u8> {
    let mut data = encoded(image, ImageFormat::Png);
    data[16..20].copy_from_slice(&width.to_be_bytes());
    data[20..24].copy_from_slice(&height.to_be_bytes());
    let crc = crc(&data[12..29]);
    data[29..33].copy_from_slice(&crc);
    data
}

fn crc(data: &[u8]) -> [u8; 4] {
    let mut crc = flate2::Crc::new();
    crc.update(data);
    crc.sum().to_be_bytes()
}

/// A JPEG whose header asks for a size.
fn jpeg_header(width: u16, height: u16) -> Vec<u8> {
    let mut data = encoded(placed(8, 8), ImageFormat::Jpeg);
    let frame = memchr::memmem::find(&data, b"\xff\xc0").unwrap();
    data[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    data[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    data
}

/// Makes a JPEG a progressive one, in its header only.
fn progressive(mut data: Vec<u8>) -> Vec<u8> {
    let frame = memchr::memmem::find(&data, b"\xff\xc0").unwrap();
    data[frame + 1] = 0xc2;
    data
}

#[test]
fn the_memory_of_a_decoder_is_bounded() {
    let says = |data: &[u8], what: &str| {
        let why = why(Picture::Pixels, data);
        assert!(why.contains(what), "{why}");
    };
    let deep = ImageBuffer::from_pixel(1, 1, Rgba([0_u16; 4]));
    // 8 bytes per pixel.
    says(
        &header(deep.clone(), 7_095, 7_095),
        "has 7095 x 7095 pixels and takes 385 MiB to decode, of 384 MiB allowed",
    );
    says(&header(deep, 7_094, 7_094), "can't be decoded");
    // 3, and 6 of coefficients.
    says(
        &progressive(jpeg_header(6_689, 6_689)),
        "takes 385 MiB to decode",
    );
    let small = |data: &[u8]| open(data).map(|opened| opened.upright());
    let largest = (6_688, 6_689);
    assert_eq!(
        small(&progressive(jpeg_header(6_688, 6_689))),
        Ok(largest),
        "{largest:?}"
    );
    // A scan per colour needs as much as a progressive one.
    let mut apart = jpeg_header(6_689, 6_689);
    assert_eq!(small(&apart), Ok((6_689, 6_689)));
    let scan = memchr::memmem::find(&apart, b"\xff\xda").unwrap();
    // The length of its segment, the number of its colours and the first of them.
    apart.splice(scan + 2..scan + 11, [0, 8, 1, 1, 0]);
    says(&apart, "takes 385 MiB to decode");
    // Scaled by its height first, this would be 2^19 * 224 pixels wide.
    let wide = encoded(
        ImageBuffer::from_pixel(1 << 19, 1, Luma([0_u8])),
        ImageFormat::Png,
    );
    let wide = array(&spec(&[224, 224, 3]), Picture::Exact, &wide);
    let why = wide.unwrap_err().to_string();
    assert!(
        why.contains("has 524288 x 1 pixels, which is too wide to be stretched to 224 x 224"),
        "{why}"
    );
}

#[test]
fn an_image_of_several_arrays_is_decoded_once() {
    let shaped = |shape: &[u64], picture| ArraySpec {
        image: picture,
        ..spec(shape)
    };
    let specs = [
        shaped(&[3], Some(Picture::Pixels)),
        shaped(&[], None),
        shaped(&[2], Some(Picture::Size)),
        shaped(&[3], Some(Picture::Pixels)),
        shaped(&[1], Some(Picture::Pixels)),
        shaped(&[2, 2, 3], Some(Picture::Crop)),
    ];
    let one = encoded(placed(7, 5), ImageFormat::Png);
    let other = encoded(
        ImageBuffer::from_pixel(2, 2, Luma([9_u8])),
        ImageFormat::Png,
    );
    let given = [&one, &one, &one, &other, &one, &other].map(|image| Bytes::from(image.clone()));
    let mut arrays = given.clone();
    let places = [vec![0, 2, 4], vec![3, 5]];
    let images = [one.clone(), other].map(Bytes::from);
    let expected = images.into_iter().zip(places);
    assert!(distinct(&specs, &mut arrays).into_iter().eq(expected));
    assert_eq!(arrays[1], one, "only images are taken");

    let mut arrays = given;
    decode(&specs, &mut arrays).unwrap();
    let rgb = placed(7, 5).into_raw();
    assert_eq!(arrays[4], pixels::luma(&rgb));
    assert_eq!(arrays[2], [5_i32, 7].map(i32::to_le_bytes).concat());
    assert_eq!([&arrays[3], &arrays[5]], [&vec![9; 12]; 2]);
    assert_eq!([&arrays[0], &arrays[1]], [&rgb, &one]);

    // The pixels are kept for as many arrays as need them.
    let mut source = Source {
        data: &one,
        pixels: None,
        users: 2,
    };
    assert_eq!(source.array(&specs[0]), Ok(rgb.clone()));
    source.data = b"gone";
    assert_eq!(source.array(&specs[0]), Ok(rgb));
    assert!(source.pixels.is_none());
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
        &header(placed(1, 1), 60_000, 60_000),
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
}

/// A PNG with a chunk behind its header that announces two frames.
fn animated_png() -> Vec<u8> {
    let data = encoded(placed(4, 4), ImageFormat::Png);
    let control = b"acTL\0\0\0\x02\0\0\0\0";
    [
        &data[..33],
        &[0, 0, 0, 8],
        control,
        &crc(control),
        &data[33..],
    ]
    .concat()
}

/// A WebP with a header that announces an animation, and two frames of one pixel.
fn animated_webp() -> Vec<u8> {
    let still = encoded(placed(1, 1), ImageFormat::WebP);
    // Behind the size and the name of the file.
    let image = &still[12..];
    let chunk =
        |name: &[u8; 4], data: &[u8]| [name, &(data.len() as u32).to_le_bytes()[..], data].concat();
    let frame = chunk(b"ANMF", &[&[0; 16], image].concat());
    let header = chunk(b"VP8X", &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let chunks = [
        b"WEBP".to_vec(),
        header,
        chunk(b"ANIM", &[0; 6]),
        frame.clone(),
        frame,
    ];
    chunk(b"RIFF", &chunks.concat())
}

#[test]
fn animations_are_refused() {
    for data in [animated_png(), animated_webp()] {
        for picture in [Picture::Pixels, Picture::Size] {
            let why = why(picture, &data);
            assert_eq!(
                why,
                "array \"image\" is an animation; take one frame of it; correct the data, or packing.arrays"
            );
        }
    }
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
