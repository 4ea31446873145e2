//! Typical bad input, through the whole daemon: each is a clear error that names place, reason and remedy, or is
//! left out with `on_bad_document = "skip"`, the same on replay; nothing before it is lost.
//!
//! Other bad input is tested elsewhere: templates that fail, loop or write without end
//! (`templates_that_fail_loop_or_do_not_end_are_bad_documents`), lines of 200 MB
//! (`a_200_mb_line_is_refused_and_passed`), damaged compression
//! (`truncated_or_damaged_compression_is_one_bad_document_with_its_line`), a broken tokenizer.json
//! (`errors_name_the_file_and_the_remedy`), two daemons with one name (`the_older_instance_is_fenced`), a
//! full disk (`a_producer_on_a_full_device_stops_with_one_error_and_goes_on_when_there_is_room`), values that
//! do not fit their type (`values_that_do_not_fit_are_named`), files that shrink
//! (`a_file_that_shrinks_while_it_is_read_is_no_end_of_the_documents`, and between two runs
//! `a_changed_input_or_setting_is_refused_by_name_without_fencing`).

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use batchweave_core::tgb::Dtype;
use batchweave_daemon::Exit;
use batchweave_producer::config::{LastBatch, OnBadDocument, PackingMode, ProducerConfig};
use batchweave_producer::packing::ArraySpec;
use batchweave_producer::{Outcome, RunError};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::support::{Corpus, World, sized};

/// Writes a Parquet file with one column, of texts or of numbers.
fn parquet(path: &Path, column: &str, texts: Option<&[&str]>) {
    let kind = ["int64", "binary"][usize::from(texts.is_some())];
    let text = [";", " (UTF8);"][usize::from(texts.is_some())];
    let schema = format!("message m {{ required {kind} {column}{text} }}");
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut one = group.next_column().unwrap().unwrap();
    if let Some(texts) = texts {
        let values: Vec<ByteArray> = texts.iter().map(|text| ByteArray::from(*text)).collect();
        let typed = one.typed::<ByteArrayType>();
        typed.write_batch(&values, None, None).unwrap();
    } else {
        let typed = one.typed::<Int64Type>();
        typed.write_batch(&[1, 2, 3], None, None).unwrap();
    }
    one.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

fn npy(path: &Path, descr: &str, shape: &str, data: &[u8]) {
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend_from_slice(&(header.len() as u16 + 1).to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.push(b'\n');
    file.extend_from_slice(data);
    std::fs::write(path, file).unwrap();
}

fn points(world: &World, pattern: &str) -> ProducerConfig {
    let path = world.folder.path().join(pattern);
    let mut config = World::config(&[path.display().to_string()], "a");
    config.packing.mode = PackingMode::Opaque;
    config.packing.arrays = vec![ArraySpec {
        name: "points".into(),
        dtype: Dtype::F32,
        shape: vec![3],
        from: String::new(),
        image: None,
        path: false,
        shortest: None,
        base64: false,
    }];
    config.packing.last_batch = LastBatch::Pad;
    config.stream.seq_len = 1;
    config
}

/// Checks that the input fails with all these words, on each of two runs, and is left out when skipping is configured,
/// with any number of stops.
pub(crate) async fn refused_or_left_out(
    world: &World,
    config: ProducerConfig,
    words: &[&str],
) -> Vec<Vec<Vec<u8>>> {
    let mut said = Vec::new();
    for _ in 0..2 {
        let why = world.run(config.clone()).await.unwrap_err();
        assert!(
            matches!(why, RunError::Document(_) | RunError::File(_)),
            "{why}"
        );
        assert_eq!(why.exit(), Exit::BadInput, "{why}");
        for word in words {
            assert!(why.to_string().contains(word), "{word} in {why}");
        }
        said.push(why.to_string());
    }
    assert_eq!(said[0], said[1]);
    let mut skipping = config;
    skipping.source.on_bad_document = OnBadDocument::Skip;
    for run in 0.. {
        assert!(run < 500, "no progress");
        let outcome = world.run_until(skipping.clone(), run).await.unwrap();
        if let Outcome::Finished { .. } = outcome {
            break;
        }
    }
    let again = World::new();
    again.run(skipping).await.unwrap();
    let payloads = world.payloads().await;
    assert!(payloads == again.payloads().await, "the same on replay");
    payloads
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parquet_file_of_another_schema_among_others_is_named() {
    for (column, texts, word) in [
        ("body", Some(&["other"][..]), "no column \"text\""),
        ("text", None, "column \"text\" is"),
    ] {
        let world = World::new();
        let folder = world.folder.path();
        let long = "words and more words ".repeat(20);
        let texts_of = |n: usize| vec![long.as_str(); n];
        parquet(&folder.join("0.parquet"), "text", Some(&texts_of(3)));
        parquet(&folder.join("1.parquet"), column, texts);
        parquet(&folder.join("2.parquet"), "text", Some(&texts_of(2)));
        let config = World::config(&[folder.display().to_string()], "a");
        let words = ["1.parquet", word, "source.column"];
        let payloads = Box::pin(refused_or_left_out(&world, config, &words)).await;
        let batch = 4 * 16;
        assert_eq!(payloads.len(), (5 * (long.len() + 1) - 1) / batch);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrays_of_another_shape_or_type_are_named() {
    for (descr, shape, data, word) in [
        ("<f4", "2, 4", &[0; 32][..], "has the shape [2, 4]"),
        (
            "<f8",
            "1, 3",
            &[0; 24][..],
            "has items of type <f8, not F32",
        ),
        ("<f4", "9, 3", &[0; 24][..], "has 24 bytes of data"),
    ] {
        let world = World::new();
        for n in 0..9 {
            let path = world.folder.path().join(format!("{n}.npy"));
            if n == 6 {
                npy(&path, descr, shape, data);
            } else {
                npy(&path, "<f4", "2, 3", &[n as u8; 24]);
            }
        }
        let config = points(&world, "*.npy");
        let words = ["6.npy", "array \"points\"", word, "packing.arrays"];
        let payloads = Box::pin(refused_or_left_out(&world, config, &words)).await;
        assert_eq!(payloads.len(), 2, "eight samples in batches of four");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_larger_than_their_bound_are_named() {
    let world = World::new();
    for n in 0..5 {
        let path = world.folder.path().join(format!("{n}.npy"));
        let items = if n == 2 { 200 } else { 2 };
        npy(&path, "<f4", &format!("{items}, 3"), &vec![1; 12 * items]);
    }
    let mut config = points(&world, "*.npy");
    config.source.max_document_bytes.0 = 1000;
    let words = [
        "2.npy",
        "longer than 1000 bytes",
        "source.max_document_bytes",
    ];
    let payloads = Box::pin(refused_or_left_out(&world, config, &words)).await;
    assert_eq!(payloads.len(), 1);

    let world = World::new();
    let sample = |items: usize| format!("{{\"points\":[{}]}}\n", vec!["[1,2,3]"; items].join(","));
    let text = sample(1) + &sample(500) + &sample(2).repeat(3);
    std::fs::write(world.folder.path().join("x.jsonl"), text).unwrap();
    let mut config = points(&world, "x.jsonl");
    config.source.max_document_bytes.0 = 1000;
    let words = ["x.jsonl:2", "longer than 1000 bytes"];
    Box::pin(refused_or_left_out(&world, config, &words)).await;
}

/// A line of 300 MB in 300 kB, in `make test` of 48 in 48, is skipped without being kept in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compressed_bomb_is_one_bad_document() {
    for zstandard in [false, true] {
        let world = World::new();
        let good = "{\"text\":\"a document before or behind it\"}\n".repeat(10);
        let path = world
            .folder
            .path()
            .join(["b.jsonl.gz", "b.jsonl.zst"][usize::from(zstandard)]);
        let file = std::fs::File::create(&path).unwrap();
        let mut out: Box<dyn std::io::Write> = if zstandard {
            Box::new(zstd::Encoder::new(file, 1).unwrap().auto_finish())
        } else {
            Box::new(flate2::write::GzEncoder::new(
                file,
                flate2::Compression::fast(),
            ))
        };
        out.write_all(good.as_bytes()).unwrap();
        out.write_all(b"{\"text\":\"").unwrap();
        let zeros = vec![b'0'; 1 << 20];
        for _ in 0..sized(48, 300) {
            out.write_all(&zeros).unwrap();
        }
        out.write_all(b"\"}\n").unwrap();
        out.write_all(good.as_bytes()).unwrap();
        drop(out);
        assert!(std::fs::metadata(&path).unwrap().len() < 4 << 20);
        let mut config = World::config(&[path.display().to_string()], "a");
        config.source.max_document_bytes.0 = 1 << 20;
        let why = world.run(config.clone()).await.unwrap_err().to_string();
        for word in [":11: ", "longer than 1048576 bytes"] {
            assert!(why.contains(word), "{word} in {why}");
        }
        config.source.on_bad_document = OnBadDocument::Skip;
        world.run(config).await.unwrap();
        let lines: Vec<String> = good.repeat(2).lines().map(str::to_owned).collect();
        assert_eq!(world.batches().await, Corpus::expected_of_lines(&lines));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_document_that_is_allowed_is_a_document() {
    let world = World::new();
    let path = world.folder.path().join("large.txt");
    let text = "0123456789abcdef".repeat(sized(40, 200) << 16);
    std::fs::write(&path, &text).unwrap();
    let mut config = World::config(&[path.display().to_string()], "a");
    config.source.max_document_bytes.0 = 1 << 30;
    (config.stream.rows_per_slice, config.stream.seq_len) = (64, 1 << 16);
    config.packing.object_bytes.0 = 16 << 20;
    world.run(config).await.unwrap();
    let batch = (2 * 64) << 16;
    assert_eq!(world.payloads().await.len(), text.len() / batch);
}
