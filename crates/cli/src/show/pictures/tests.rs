//! Pages of slices that are made by hand: tokens with arrays of documents, and samples.

use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use batchweave_core::tgb::{Dtype, Layout};
use batchweave_log::Frame;

use super::html::{self, Document, Row};
use super::page;

type Given<'a> = (&'a str, Dtype, Vec<u64>, Vec<u8>);

fn frame(slice: u32, arrays: &[Given<'_>]) -> Frame {
    let shapes = arrays
        .iter()
        .map(|(name, dtype, shape, _)| (*name, *dtype, shape.clone()));
    let data: Vec<(&str, &[u8])> = arrays
        .iter()
        .map(|(name, _, _, data)| (*name, &data[..]))
        .collect();
    let payload = Layout::new(shapes).unwrap().encode(&data).unwrap();
    Frame {
        slice,
        key: "data/a.tgb".into(),
        offset: 0,
        bytes: payload.len() as u64,
        crc32c: None,
        fault: None,
        payload: Some(payload.into()),
    }
}

fn i64s(values: &[i64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn i32s(values: &[i32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn offsets<'a>(name: &'a str, values: &[i64]) -> Given<'a> {
    (name, Dtype::I64, vec![values.len() as u64], i64s(values))
}

fn pixels(count: u8) -> Vec<u8> {
    (0..count).collect()
}

/// Two rows of two documents and one: fixed pictures, pixels with sizes, and actions.
fn tokens() -> Vec<Given<'static>> {
    vec![
        ("tokens", Dtype::U16, vec![2, 5], vec![0; 20]),
        ("loss_mask", Dtype::U8, vec![2, 5], vec![1; 10]),
        offsets("segments.offsets", &[0, 2, 3]),
        ("image", Dtype::U8, vec![2, 1, 2, 3], pixels(12)),
        offsets("image.offsets", &[0, 1, 1, 2]),
        ("pixels", Dtype::U8, vec![8, 1], pixels(8)),
        offsets("pixels.offsets", &[0, 0, 6, 8]),
        ("other", Dtype::I32, vec![3, 2], i32s(&[9, 9, 1, 1, 1, 1])),
        offsets("other.offsets", &[0, 1, 2, 3]),
        ("size", Dtype::I32, vec![3, 2], i32s(&[2, 1, 1, 4, 2, 1])),
        offsets("size.offsets", &[0, 0, 2, 3]),
        (
            "action",
            Dtype::F32,
            vec![3],
            [0.1_f32, 2.0, -0.5]
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect(),
        ),
        offsets("action.offsets", &[0, 1, 3, 3]),
    ]
}

fn shown(frames: &[Frame]) -> (String, u64, u64) {
    page("Step 7", 2, frames, &[]).unwrap()
}

/// The pictures of a page: caption, height, width and pixels.
fn pictures(html: &str) -> Vec<(String, u32, u32, Vec<u8>)> {
    let images = html.split("<img alt=\"").skip(1);
    let image = |text: &str| {
        let (caption, rest) = text.split_once("\" src=\"data:image/png;base64,").unwrap();
        let file = STANDARD.decode(rest.split_once('"').unwrap().0).unwrap();
        let mut reader = png::Decoder::new(Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (caption.to_owned(), info.height, info.width, pixels)
    };
    images.map(image).collect()
}

#[test]
fn rows_of_tokens_have_the_pictures_of_their_documents() {
    let (html, rows, count) = shown(&[frame(3, &tokens())]);
    assert_eq!((rows, count), (2, 5));
    let (first, second) = html.split_once("slice 3, row 1").unwrap();
    let own = pictures(first);
    assert_eq!(own[0], ("image, 1 × 2".into(), 1, 2, pixels(6)));
    assert_eq!(own[1], ("pixels, 2 × 1".into(), 2, 1, vec![0, 1]));
    assert_eq!(own[2], ("pixels, 1 × 4".into(), 1, 4, vec![2, 3, 4, 5]));
    assert_eq!(own.len(), 3);
    let own = pictures(second);
    assert_eq!(own[0].3, [6, 7, 8, 9, 10, 11]);
    assert_eq!(own[1], ("pixels, 2 × 1".into(), 2, 1, vec![6, 7]));
    // Each document has its own box, with a table of the other arrays.
    let documents: Vec<&str> = first.split("<article>").skip(1).collect();
    assert_eq!(documents.len(), 2);
    assert!(documents[0].contains("document 1 of the row"));
    assert!(documents[0].contains("<th>action</th><th>F32 [1]</th><td><code>0.1</code>"));
    assert!(
        documents[1].contains("<code>2 -0.5</code>"),
        "{}",
        documents[1]
    );
    assert!(documents[1].contains("<th>other</th><th>I32 [1, 2]</th>"));
    assert!(
        !html.contains("<th>size</th>"),
        "the captions have the sizes"
    );
    assert!(!html.contains("<th>loss_mask</th>"));
}

#[test]
fn samples_have_encoded_pictures_as_they_are() {
    let jpeg = [0xff, 0xd8, 0xff, 0xe0, 7];
    let files = [&jpeg[..], b"RIFF....WEBPVP8 ", b"plain", &[]].concat();
    let arrays = [
        ("file", Dtype::U8, vec![files.len() as u64], files),
        offsets("file.offsets", &[0, 5, 21, 26, 26]),
    ];
    let (html, rows, count) = shown(&[frame(0, &arrays)]);
    assert_eq!((rows, count), (4, 2));
    let url = format!("src=\"data:image/jpeg;base64,{}\"", STANDARD.encode(jpeg));
    assert!(html.contains(&url));
    assert!(html.contains("file, webp, 16 B"), "{html}");
    assert!(html.contains("slice 0, sample 3"));
    assert!(html.contains("<th>file</th><th>U8 [5]</th><td><code>112 108 97 105 110</code>"));
    assert!(!html.contains("alt=\"file, jpeg, 5 B\" src=\"data:image/png"));
    let large = [vec![0xff, 0xd8, 0xff], vec![0; 1 << 20]].concat();
    let end = i64::try_from(large.len()).unwrap();
    let arrays = [
        ("file", Dtype::U8, vec![end.unsigned_abs()], large),
        offsets("file.offsets", &[0, end]),
    ];
    let (html, _, _) = shown(&[frame(0, &arrays)]);
    assert!(html.contains("not shown: larger than 1.0 MiB"));
    assert!(html.len() < 10_000);
}

#[test]
fn large_pictures_and_many_rows_are_bounded() {
    let side = 1100;
    let big = [
        (
            "image",
            Dtype::U8,
            vec![1, side, 2, 1],
            pixels(2).repeat(1100),
        ),
        offsets("image.offsets", &[0, 1]),
    ];
    let (html, _, _) = shown(&[frame(0, &big)]);
    let own = pictures(&html);
    assert_eq!((own[0].1, own[0].2), (367, 1));
    assert!(
        own[0]
            .0
            .ends_with("1100 × 2, one pixel of 3 in each direction")
    );
    let ends: Vec<i64> = (0..=40).map(|n| n * 2).collect();
    let many = [
        ("image", Dtype::U8, vec![80, 1, 1, 1], pixels(80)),
        offsets("image.offsets", &ends),
        ("n", Dtype::U8, vec![80], pixels(80)),
        offsets("n.offsets", &ends),
    ];
    let frames = [frame(0, &many), frame(1, &many)];
    let (html, rows, count) = page("Step 7", 80, &frames, &[]).unwrap();
    assert_eq!((rows, count), (64, 128));
    assert!(html.contains("64 of 80 rows"));
    let album = [
        ("image", Dtype::U8, vec![20, 1, 1, 3], pixels(60)),
        offsets("image.offsets", &[0, 20]),
        ("values", Dtype::U8, vec![20], pixels(20)),
        offsets("values.offsets", &[0, 20]),
    ];
    let (html, _, count) = shown(&[frame(0, &album)]);
    assert_eq!(count, 16);
    assert!(html.contains("image: 4 more pictures"));
    assert!(html.contains("10 11 …"), "{html}");
    let long = Document {
        text: vec![
            (true, "é".repeat(3_999)),
            (false, "<&>".into()),
            (false, "b".into()),
        ],
        ..Document::default()
    };
    let html = html::row(&Row {
        title: String::new(),
        documents: vec![long],
        more: Vec::new(),
    });
    assert!(html.contains("é<span class=\"off\">&lt;</span></pre>"));
    assert!(html.contains("3 more characters"));
}

#[test]
fn text_of_the_stream_is_no_markup() {
    let hostile = "<script>alert(1)</script>\"'&amp;</pre>\0";
    let arrays = [
        (hostile, Dtype::U8, vec![2, 1, 1, 1], pixels(2)),
        ("b<i>", Dtype::F16, vec![2], vec![0; 4]),
    ];
    let (body, _, _) = page(hostile, 2, &[frame(0, &arrays)], &[]).unwrap();
    let row = html::row(&Row {
        title: hostile.into(),
        documents: vec![Document {
            caption: hostile.into(),
            text: vec![(true, hostile.into()), (false, hostile.into())],
            more: vec![hostile.into()],
            ..Document::default()
        }],
        more: vec![hostile.into()],
    });
    for html in [&body, &row] {
        assert!(!html.contains("<script") && !html.contains("<i>") && !html.contains('\0'));
        assert_eq!(
            html.matches("</pre>").count(),
            html.matches("<pre>").count()
        );
    }
    let safe = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;amp;&lt;/pre&gt;\u{fffd}";
    assert_eq!(row.matches(safe).count(), 6);
    // The title twice, and per sample the alternative text and the caption.
    assert_eq!(body.matches(safe).count(), 2 + 2 * 2);
}

#[test]
fn offsets_that_divide_nothing_and_damage_are_named() {
    let broken = |name: &str, values: &[i64]| {
        let mut arrays = tokens();
        arrays.retain(|array| array.0 != name);
        arrays.push(offsets(name, values));
        page("", 2, &[frame(3, &arrays)], &[])
            .unwrap_err()
            .to_string()
    };
    let wrong = broken("image.offsets", &[0, 1, 1, 3]);
    assert!(
        wrong.starts_with("slice 3: array \"image.offsets\" does not divide the 2 items"),
        "{wrong}"
    );
    let wrong = broken("image.offsets", &[0, 2, 1, 2]);
    assert!(
        wrong.contains("array \"image.offsets\" (I64) has no rising offsets"),
        "{wrong}"
    );
    assert!(broken("image.offsets", &[-1, 1, 1, 2]).contains("no rising offsets"));
    assert!(broken("segments.offsets", &[]).contains("\"segments.offsets\" (I64) has no rising"));
    let wrong = broken("segments.offsets", &[0, 2, 4]);
    assert!(
        wrong.contains("has items of 3 documents, the rows have 4"),
        "{wrong}"
    );
    let lost = Frame {
        fault: Some("the object is missing <b>".into()),
        payload: None,
        ..frame(1, &tokens())
    };
    let (html, rows, _) = shown(&[lost, frame(2, &tokens())]);
    assert_eq!(rows, 2);
    assert!(html.contains("slice 1 is not shown: the object is missing &lt;b&gt;"));
}

#[test]
fn pixels_without_fitting_sizes_are_values() {
    let arrays = [
        ("pixels", Dtype::U8, vec![3, 3], pixels(9)),
        offsets("pixels.offsets", &[0, 2, 3]),
        (
            "size",
            Dtype::I32,
            vec![2, 2],
            i32s(&[1, 2, i32::MAX, i32::MAX]),
        ),
        offsets("size.offsets", &[0, 1, 2]),
        ("empty", Dtype::U8, vec![2, 0, 4, 3], Vec::new()),
    ];
    let (html, _, count) = shown(&[frame(0, &arrays)]);
    assert_eq!(count, 0);
    assert!(html.contains("<th>pixels</th><th>U8 [2, 3]</th><td><code>0 1 2 3 4 5</code>"));
    assert!(html.contains("<th>size</th>"));
}
