//! `show --pictures` on batches of the real producer.

use batchweave_core::tgb::{Dtype, Layout};
use batchweave_producer::config::{LastBatch, PackingMode};
use batchweave_producer::packing::{ArraySpec, Extra, Picture};

use crate::decode::{Made, produced};
use crate::world::{SLICES, World, tgb};

/// A PNG of a red and a blue pixel, in base64.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR4nGP4zwAE/wEHAAH/4iOeWQAAAABJRU5ErkJggg==";

fn array(
    name: &str,
    dtype: Dtype,
    shape: &[u64],
    image: Option<Picture>,
    base64: bool,
) -> ArraySpec {
    ArraySpec {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        from: if base64 { "png".into() } else { String::new() },
        image,
        path: false,
        shortest: None,
        base64,
    }
}

async fn samples() -> Made {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("samples.jsonl");
    let line = |n: u64| serde_json::json!({"png": PNG, "label": [n, 7]}).to_string() + "\n";
    std::fs::write(&file, (0..9).map(line).collect::<String>()).unwrap();
    produced(|config| {
        config.source.paths = vec![file.display().to_string()];
        config.source.epochs = 1;
        config.stream.seq_len = 1;
        config.packing.mode = PackingMode::Opaque;
        config.packing.last_batch = LastBatch::Pad;
        config.packing.arrays = vec![
            array("file", Dtype::U8, &[], None, true),
            array("pixels", Dtype::U8, &[3], Some(Picture::Pixels), true),
            array("size", Dtype::I32, &[2], Some(Picture::Size), true),
            array("thumb", Dtype::U8, &[2, 4, 1], Some(Picture::Exact), true),
            array("label", Dtype::I64, &[], None, false),
        ];
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_are_shown_with_their_pictures() {
    let made = samples().await;
    let page = made.world.path("page.html");
    let path = page.to_str().unwrap();
    let wrote = made.world.run(&["show", "0", "--pictures", path]);
    wrote.prints(&[&format!("{path}: 4 of 4 rows, 12 pictures, ")]);
    let html = std::fs::read_to_string(&page).unwrap();
    for row in [
        "slice 0, sample 0",
        "slice 0, sample 1",
        "slice 1, sample 0",
        "slice 1, sample 1",
    ] {
        assert!(html.contains(row), "{row}");
    }
    let whole = format!("<img alt=\"file, png, 70 B\" src=\"data:image/png;base64,{PNG}\">");
    assert_eq!(html.matches(&whole).count(), 4, "{html}");
    assert_eq!(html.matches("<figcaption>pixels, 1 × 2<").count(), 4);
    assert_eq!(html.matches("<figcaption>thumb, 2 × 4<").count(), 4);
    assert!(html.contains("samples.jsonl:3"), "the source");
    assert_eq!(html.matches("<article>").count(), 4, "beside its pictures");
    assert!(html.contains("<th>label</th><th>I64 [2]</th><td><code>3 7</code>"));
    // Only one slice, and the last batch, which is not full.
    for (step, more, expected) in [("1", &["--slice", "1"][..], (2, 2)), ("2", &[][..], (1, 4))] {
        let file = made.world.path(&format!("page-{step}.html"));
        let mut args = vec!["show", step, "--pictures", file.to_str().unwrap()];
        args.extend(more);
        let page = &made.world.json(&args)["pictures"];
        assert_eq!(
            (page["rows"].as_u64(), page["of_rows"].as_u64()),
            (Some(expected.0), Some(expected.1))
        );
        assert_eq!(page["pictures"], 3 * expected.0);
        let written = std::fs::read(&file).unwrap();
        assert_eq!(page["bytes"], written.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_written_once_and_where_its_folder_is() {
    let made = samples().await;
    let page = made.world.path("page.html");
    let path = page.to_str().unwrap();
    std::fs::write(&page, "mine").unwrap();
    let ran = made.world.run(&["show", "0", "--pictures", path]);
    ran.fails(
        1,
        &[
            "page.html: exists already",
            "name another file, or delete it",
        ],
    );
    assert_eq!(std::fs::read(&page).unwrap(), b"mine");
    let lost = made.world.path("no/page.html");
    let ran = made
        .world
        .run(&["show", "0", "--pictures", lost.to_str().unwrap()]);
    ran.fails(1, &["no/page.html: its folder does not exist; create it"]);
    let inside = page.join("page.html");
    let ran = made
        .world
        .run(&["show", "0", "--pictures", inside.to_str().unwrap()]);
    ran.fails(1, &["its folder does not exist"]);
    let ran = made
        .world
        .run(&["show", "0", "--tokenizer", "tokenizer.json"]);
    ran.fails(64, &["--decode", "--pictures"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_is_shown_with_its_mask_and_its_sources() {
    let made = produced(|config| {
        config.packing.mode = PackingMode::BestFit;
        config.packing.fields = vec![Extra::LossMask];
        config.stream.seq_len = 64;
    })
    .await;
    let page = made.world.path("page.html");
    let ran = made
        .world
        .run(&["show", "0", "--pictures", page.to_str().unwrap()]);
    ran.prints(&["4 of 4 rows, 0 pictures"]);
    assert!(!ran.out.contains("Text 0 says"), "only --decode prints it");
    let html = std::fs::read_to_string(&page).unwrap();
    // Of a document the first token is not learned.
    assert!(
        html.contains("<pre><span class=\"off\">T</span>ext 0 says"),
        "{html}"
    );
    assert!(html.contains("&lt;|endoftext|&gt;</pre>"));
    assert!(html.contains("not learned (loss_mask)"));
    assert!(html.contains("source.jsonl:1, "));
    let both = made.world.path("both.html");
    let ran = made.world.run(&[
        "show",
        "0",
        "--decode",
        "--pictures",
        both.to_str().unwrap(),
    ]);
    ran.prints(&["Text 0 says", "both.html: 4 of 4 rows"]);
}

/// Rows of two documents and one, each with its pictures, as packing.arrays beside tokens makes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_of_rows_are_shown_beside_their_pictures() {
    let world = World::with_stream("p0");
    let shapes = [
        ("tokens", Dtype::U16, vec![2, 9]),
        ("segments.offsets", Dtype::I64, vec![3]),
        ("image", Dtype::U8, vec![2, 1, 1, 3]),
        ("image.offsets", Dtype::I64, vec![4]),
    ];
    let layout = Layout::new(shapes).unwrap();
    // The bytes of "abc", "defg" and "hijklmno", each with the end token.
    let text = [97, 98, 99, 256, 100, 101, 102, 103, 256];
    let more = [104, 105, 106, 107, 108, 109, 110, 111, 256];
    let tokens: Vec<u8> = text
        .iter()
        .chain(&more)
        .flat_map(|token: &u16| token.to_le_bytes())
        .collect();
    let i64s = |values: &[i64]| {
        values
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let data: [(&str, &[u8]); 4] = [
        ("tokens", &tokens),
        ("segments.offsets", &i64s(&[0, 2, 3])),
        ("image", &[1, 2, 3, 4, 5, 6]),
        ("image.offsets", &i64s(&[0, 0, 1, 2])),
    ];
    let slice = layout.encode(&data).unwrap();
    let mut tgb = tgb(0);
    tgb.slices = (0..SLICES).map(|_| slice.clone().into()).collect();
    let mut producer = world.producer("p0").await;
    producer.commit_data(&[tgb], 1 << 20).await;
    let page = world.path("page.html");
    let ran = world.run(&[
        "show",
        "0",
        "--pictures",
        page.to_str().unwrap(),
        "--slice",
        "2",
    ]);
    ran.prints(&["2 of 2 rows, 2 pictures"]);
    let html = std::fs::read_to_string(&page).unwrap();
    let documents: Vec<&str> = html.split("<article>").skip(1).collect();
    let expected = [("abc", 0), ("defg", 1), ("hijklmno", 1)];
    assert_eq!(documents.len(), expected.len(), "{html}");
    for (document, (text, pictures)) in documents.iter().zip(expected) {
        assert!(
            document.contains(&format!("<pre>{text}&lt;|endoftext|&gt;</pre>")),
            "{document}"
        );
        assert_eq!(document.matches("<img ").count(), pictures, "{document}");
    }
}
