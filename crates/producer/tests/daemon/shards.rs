//! Tar shards as the webdataset package writes them, in every mode and however the producer is cut.

use std::path::Path;

use batchweave_core::tgb::{Dtype, Layout};
use batchweave_producer::config::{
    LastBatch, NamedSource, PackingMode, ProducerConfig, ShuffleConfig,
};
use batchweave_producer::packing::ArraySpec;
use batchweave_producer::sources::Format;
use tar::{Builder, Header};

use crate::bad_input::refused_or_left_out;
use crate::modes::the_same_however_cut;
use crate::support::{Corpus, World};

/// Writes a shard; the end of its name selects the compression.
fn write(path: &Path, files: &[(String, Vec<u8>)]) {
    let mut tar = Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, &data[..]).unwrap();
    }
    let bytes = tar.into_inner().unwrap();
    let end = path.extension().unwrap().to_str().unwrap();
    let bytes = match end {
        "tgz" => {
            let mut packed = flate2::read::GzEncoder::new(&bytes[..], flate2::Compression::fast());
            let mut out = Vec::new();
            std::io::Read::read_to_end(&mut packed, &mut out).unwrap();
            out
        }
        "zst" => zstd::encode_all(&bytes[..], 1).unwrap(),
        _ => bytes,
    };
    std::fs::write(path, bytes).unwrap();
}

/// The files of samples with a picture of any size, a class and two points.
fn samples(numbers: std::ops::Range<usize>) -> Vec<(String, Vec<u8>)> {
    let sample = |n: usize| {
        let folder = format!("in{}", " a long folder".repeat(n % 12));
        let points = format!("[[{n}, 0.5], [{n}, 1.5]]");
        let jpg = (0..n * 7 % 90).map(|k| (n + k) as u8).collect();
        let key = format!("{folder}/{n:04}");
        [
            (format!("{key}.jpg"), jpg),
            (format!("{key}.txt"), vec![b'x'; n % 700]),
            (format!("{key}.cls"), (n % 10).to_string().into_bytes()),
            (format!("{key}.points.json"), points.into_bytes()),
        ]
    };
    numbers.flat_map(sample).collect()
}

fn shards(world: &World) -> Vec<String> {
    let names = ["a.tar", "b.tgz", "c.tar.zst"];
    let paths = names.map(|name| world.folder.path().join(name));
    for (n, path) in paths.iter().enumerate() {
        write(path, &samples(100 * n..100 * (n + 1)));
    }
    paths.map(|path| path.display().to_string()).into()
}

fn arrays() -> Vec<ArraySpec> {
    let spec = |name: &str, from: &str, dtype, shape: &[u64]| ArraySpec {
        name: name.to_owned(),
        from: from.to_owned(),
        dtype,
        shape: shape.to_vec(),
        base64: false,
        image: None,
        path: false,
        shortest: None,
    };
    vec![
        spec("image", "jpg;png", Dtype::U8, &[]),
        spec("cls", "", Dtype::I32, &[]),
        spec("points", "points.json", Dtype::F32, &[2]),
    ]
}

fn opaque(paths: &[String]) -> ProducerConfig {
    let mut config = World::config(paths, "a");
    config.packing.mode = PackingMode::Opaque;
    config.packing.arrays = arrays();
    config.packing.last_batch = LastBatch::Pad;
    config.stream.seq_len = 1;
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webdataset_is_the_same_however_it_is_cut() {
    the_same_however_cut(|world| opaque(&shards(world))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shuffled_sources_of_a_webdataset_are_the_same_however_they_are_cut() {
    the_same_however_cut(|world| {
        let paths = shards(world);
        let mut config = opaque(&[]);
        let source = |name: &str, paths: &[String], weight| NamedSource {
            name: name.to_owned(),
            paths: paths.to_vec(),
            format: Format::Auto,
            field: "text".to_owned(),
            column: "text".to_owned(),
            weight,
            epochs: 2,
            follow: false,
            inbox: false,
            shuffle: Some(ShuffleConfig {
                seed: 5,
                window: batchweave_daemon::config::ByteSize::mib(1),
            }),
        };
        config.sources = vec![
            source("one", &paths[..1], 1.),
            source("two", &paths[1..], 3.),
        ];
        config
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_a_webdataset_come_out_as_they_went_in() {
    let world = World::new();
    world.run(opaque(&shards(&world))).await.unwrap();
    let (mut images, mut classes, mut points) = (Vec::new(), Vec::new(), Vec::new());
    for payload in world.payloads().await.into_iter().flatten() {
        let layout = Layout::parse(&payload).unwrap();
        let data = |name: &str| {
            let array = layout.array(name).unwrap();
            payload[array.offset as usize..][..array.bytes as usize].to_vec()
        };
        images.extend(data("image"));
        classes.extend(data("cls"));
        points.extend(data("points"));
    }
    let files = samples(0..300);
    let jpg = files.iter().step_by(4).flat_map(|(_, data)| data.clone());
    assert!(images == jpg.collect::<Vec<_>>());
    let cls = (0..300).flat_map(|n| (n % 10_i32).to_le_bytes());
    assert!(classes == cls.collect::<Vec<_>>());
    let floats = (0..300_u16).flat_map(|n| [f32::from(n), 0.5, f32::from(n), 1.5]);
    assert!(points == floats.flat_map(f32::to_le_bytes).collect::<Vec<_>>());
}

/// The texts of a corpus, in the files and fields of samples, give the batches of its lines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_a_webdataset_are_packed_as_lines_are() {
    let corpus = Corpus::new(3, 120);
    let lines = World::new();
    lines
        .run(World::config(&corpus.write(&lines, 1), "a"))
        .await
        .unwrap();
    let expected = lines.payloads().await;
    assert!(expected.len() > 20);
    let text = |line: &String| {
        let object: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(object["text"].as_str()?.to_owned())
    };
    let blank = |line: &&String| !line.trim().is_empty();
    let lines: Vec<&String> = corpus.lines.iter().filter(blank).collect();
    for (field, end) in [("text", "txt"), ("json.text", "json"), ("en.md", "en.md")] {
        let world = World::new();
        let files = lines.iter().enumerate().flat_map(|(n, line)| {
            let data = if end == "json" {
                line.replace(':', ":\n").into_bytes()
            } else {
                text(line).unwrap().into_bytes()
            };
            [
                (format!("{n:03}.jpg"), vec![0xff; 30]),
                (format!("{n:03}.{end}"), data),
            ]
        });
        let path = world.folder.path().join("a.tar");
        write(&path, &files.collect::<Vec<_>>());
        let mut config = World::config(&[path.display().to_string()], "a");
        config.source.field = field.to_owned();
        world.run(config).await.unwrap();
        assert!(world.payloads().await == expected, "{field}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_of_a_webdataset_match_conversations_of_lines() {
    let chat = |world: &World, path: &Path| {
        let mut config = World::config(&[path.display().to_string()], "a");
        let template = world.folder.path().join("t.jinja");
        let text = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|endoftext|>{% endfor %}";
        std::fs::write(&template, text).unwrap();
        config.chat.template = template.display().to_string();
        config.packing.mode = PackingMode::Chat;
        config.stream.seq_len = 63;
        config
    };
    let line = |n: usize| {
        format!(
            "{{\"messages\":[{{\"role\":\"user\",\"content\":\"q{n}\"}},{{\"role\":\"assistant\",\"content\":\"a{n}\"}}]}}"
        )
    };
    let lines = World::new();
    let path = lines.folder.path().join("a.jsonl");
    std::fs::write(&path, (0..60).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    lines.run(chat(&lines, &path)).await.unwrap();
    let expected = lines.payloads().await;
    assert!(expected.len() > 5);
    let world = World::new();
    let path = world.folder.path().join("a.tar");
    let files = (0..60).map(|n| (format!("{n}.json"), line(n).into_bytes()));
    write(&path, &files.collect::<Vec<_>>());
    world.run(chat(&world, &path)).await.unwrap();
    assert!(world.payloads().await == expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_samples_of_a_webdataset_are_named_with_shard_and_key() {
    type Change = fn(&mut Vec<(String, Vec<u8>)>);
    let cases: [(Change, &[&str]); 4] = [
        (
            |files| files[14].1 = b"cat".to_vec(),
            &["a.tar:4: sample ", "0003\": array \"cls\" holds \"cat\""],
        ),
        (
            |files| drop(files.remove(12)),
            &[
                "a.tar:4: sample ",
                "0003\": no file \"jpg;png\" in a sample with \"cls\"",
            ],
        ),
        (
            |files| files.insert(15, files[14].clone()),
            &["a.tar:4: sample ", "0003\": two files \"cls\""],
        ),
        (
            |files| files[12].1 = vec![1; 5000],
            &[
                "a.tar:4: sample ",
                "0003\": the document is longer than 4000 bytes",
            ],
        ),
    ];
    for (change, words) in cases {
        let world = World::new();
        let path = world.folder.path().join("a.tar");
        let mut files = samples(0..9);
        change(&mut files);
        write(&path, &files);
        let mut config = opaque(&[path.display().to_string()]);
        config.source.max_document_bytes.0 = 4000;
        let payloads = Box::pin(refused_or_left_out(&world, config, words)).await;
        assert_eq!(payloads.len(), 2, "eight samples in batches of four");
    }
    let world = World::new();
    let path = world.folder.path().join("a.tar");
    write(&path, &samples(0..9));
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 2000]).unwrap();
    let config = opaque(&[path.display().to_string()]);
    let words = ["a.tar", "not readable as tar: it ends"];
    let payloads = Box::pin(refused_or_left_out(&world, config, &words)).await;
    assert_eq!(payloads.len(), 2, "eight samples in batches of four");
}
