//! Several sources, shuffled and in shares: the same batches however the producer is interrupted, and each document once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use batchweave_core::tgb::Dtype;
use batchweave_daemon::Exit;
use batchweave_daemon::config::ByteSize;
use batchweave_producer::config::{
    LastBatch, NamedSource, PackingMode, ProducerConfig, ShuffleConfig,
};
use batchweave_producer::packing::{ArraySpec, Extra};
use batchweave_producer::sources::Format;

use crate::modes::the_same_however_cut;
use crate::support::{Random, World};

/// Lines of JSON, each with a text of up to a few hundred bytes.
pub(crate) fn lines(seed: u64, count: usize) -> String {
    let mut random = Random(seed);
    let mut text = String::new();
    for n in 0..count {
        let words = random.next() % 100;
        let body: String = (0..words).fold(String::new(), |mut body, _| {
            let _ = write!(body, " w{:x}", random.next() % 4096);
            body
        });
        writeln!(text, "{{\"body\":\"{seed} {n}{body}\"}}").unwrap();
    }
    text
}

pub(crate) fn write(world: &World, name: &str, bytes: &[u8]) -> String {
    let path = world.folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

pub(crate) fn packed(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

pub(crate) fn source(
    name: &str,
    paths: Vec<String>,
    weight: f64,
    window: Option<u64>,
) -> NamedSource {
    NamedSource {
        name: name.to_owned(),
        paths,
        format: Format::Jsonl,
        field: "body".to_owned(),
        column: "text".to_owned(),
        weight,
        epochs: 1,
        follow: false,
        inbox: false,
        shuffle: window.map(|window| ShuffleConfig {
            seed: 4,
            window: ByteSize(window),
        }),
    }
}

/// A file of several blocks, small files, and compressed ones that are read side by side, in two passes.
pub(crate) fn three(world: &World) -> ProducerConfig {
    let web = write(world, "web.jsonl", lines(1, 2500).as_bytes());
    let code: Vec<String> = (0..3)
        .map(|n| {
            write(
                world,
                &format!("code{n}.jsonl"),
                lines(10 + n, 300).as_bytes(),
            )
        })
        .collect();
    let math: Vec<String> = (0..4)
        .map(|n| {
            write(
                world,
                &format!("math{n}.jsonl.gz"),
                &packed(&lines(20 + n, 400)),
            )
        })
        .collect();
    let mut config = World::config(&[], "a");
    (config.stream.slices, config.stream.rows_per_slice) = (2, 2);
    config.stream.seq_len = 2048;
    config.source.paths.clear();
    config.sources = vec![
        source("web", vec![web], 0.6, Some(300_000)),
        source("code", code, 0.3, None),
        source("math", math, 0.1, Some(50_000)),
    ];
    config.sources[1].epochs = 2;
    config.packing.last_batch = LastBatch::Pad;
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_sources_are_the_same_however_they_are_cut() {
    the_same_however_cut(three).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_documents_of_three_sources_are_the_same_however_they_are_cut() {
    the_same_however_cut(|world| {
        let mut config = three(world);
        config.packing.mode = PackingMode::BestFit;
        config.packing.look_ahead = 40;
        config.packing.fields = Extra::ALL.to_vec();
        config
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_three_sources_are_the_same_however_they_are_cut() {
    the_same_however_cut(|world| {
        let mut config = three(world);
        config.packing.mode = PackingMode::Opaque;
        config.packing.arrays = vec![ArraySpec {
            name: "body".to_owned(),
            dtype: Dtype::U8,
            shape: Vec::new(),
            from: String::new(),
            image: None,
            path: false,
            shortest: None,
            base64: false,
        }];
        (config.stream.rows_per_slice, config.stream.seq_len) = (20, 1);
        config
    })
    .await;
}

/// Documents by source, pass, file and unit, with their number of items, over three producers.
pub(crate) async fn documents(world: &World) -> BTreeMap<(u64, u32, u64), u64> {
    let mut all = BTreeMap::new();
    for sources in world.sources().await {
        for piece in sources.pieces {
            let shared = u64::from(piece.skip > 0);
            *all.entry((piece.pass, piece.file, piece.unit)).or_insert(0) += piece.items - shared;
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_document_of_each_pass_comes_once_over_all_producers() {
    let world = World::new();
    let names = ["a", "b", "c"];
    for (index, name) in (0..).zip(names) {
        let mut config = three(&world);
        config.packing.mode = PackingMode::BestFit;
        config.stream.producers = names.map(str::to_owned).into();
        config.producer.name = name.to_owned();
        (config.producer.index, config.producer.of) = (index, 3);
        world.run(config).await.unwrap();
    }
    assert!(world.ended().await);
    let mut expected = BTreeMap::new();
    let mut add = |pass, file, text: &str, by_byte: bool| {
        let mut begin = 0;
        for (line, text) in text.lines().enumerate() {
            let unit = if by_byte { begin } else { line };
            // The text, without {"body":""}, and the end token.
            expected.insert((pass, file, unit as u64), text.len() as u64 - 11 + 1);
            begin += text.len() + 1;
        }
    };
    add(0, 0, &lines(1, 2500), true);
    for n in 0..3 {
        add(0, 1 + n, &lines(10 + u64::from(n), 300), true);
        add(1, 1 + n, &lines(10 + u64::from(n), 300), true);
    }
    for n in 0..4 {
        add(0, 4 + n, &lines(20 + u64::from(n), 400), false);
    }
    let found = documents(&world).await;
    assert_eq!(found.len(), expected.len());
    assert!(found == expected);
}

/// Shares at the end of every batch, until a source ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_hold_in_every_batch() {
    let world = World::new();
    world.run(three(&world)).await.unwrap();
    let mut given = [0_f64; 3];
    for (n, sources) in world.sources().await.into_iter().enumerate() {
        for piece in sources.pieces {
            given[match piece.file {
                0 => 0,
                1..4 => 1,
                _ => 2,
            }] += piece.items as f64;
        }
        let total: f64 = given.iter().sum();
        if total > 500_000.0 {
            assert!(n > 50);
            return;
        }
        for (given, weight) in given.iter().zip([0.6, 0.3, 0.1]) {
            // Three documents, and the tokens that batches share.
            let error = (given - weight * total).abs();
            assert!(error < 3.0 * 700.0 + n as f64, "{error} of {total}");
        }
    }
    panic!("the sources were over before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_order_under_the_same_name_is_refused() {
    let world = World::new();
    let config = three(&world);
    begin(&world, config.clone()).await;
    let refused = async |change: fn(&mut ProducerConfig), part: &str| {
        let mut config = config.clone();
        change(&mut config);
        let why = world.run(config).await.unwrap_err();
        assert_eq!(why.exit(), Exit::Config, "{why}");
        assert!(why.to_string().contains(part), "{why}");
    };
    refused(
        |config| {
            let all = config.sources.drain(..).flat_map(|source| source.paths);
            config.source.paths = all.collect();
            config.source.field = "body".to_owned();
        },
        "was started with [[sources]], and this configuration has [source]",
    )
    .await;
    refused(|config| config.sources[0].weight = 0.5, "sources: was ").await;
    refused(|config| config.sources[0].shuffle = None, "sources: was ").await;
    world.run(config.clone()).await.unwrap();
}

/// Runs until some batches are committed.
async fn begin(world: &World, config: ProducerConfig) {
    world.run_until_more_than(0, config).await;
}

/// The run ends with `web` and `code`; a restart anywhere, also where they have ended, changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_source_ends_with_the_others_however_it_is_cut() {
    the_same_however_cut(|world| {
        let mut config = three(world);
        (config.sources[1].weight, config.sources[2].weight) = (0.2, 0.2);
        config.sources[2].epochs = 0;
        config
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_in_two_sources_is_refused() {
    let world = World::new();
    let mut config = three(&world);
    let path = config.sources[0].paths[0].clone();
    config.sources[1].paths.push(path);
    let why = world.run(config).await.unwrap_err();
    assert_eq!(why.exit(), Exit::BadInput);
    let why = why.to_string();
    assert!(
        why.contains("web.jsonl is in the sources web and code"),
        "{why}"
    );
}

/// A source without a table of its own, in shuffled order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shuffled_source_is_one_of_that_name() {
    let run = async |make: fn(ProducerConfig) -> ProducerConfig| {
        let world = World::new();
        let mut config = three(&world);
        config.sources.truncate(1);
        world.run(make(config)).await.unwrap();
        world.payloads().await
    };
    let plain = run(|mut config| {
        let source = config.sources.remove(0);
        config.source.paths = source.paths;
        config.source.format = source.format;
        config.source.field = source.field;
        config.source.shuffle = source.shuffle;
        config
    })
    .await;
    let named = run(|mut config| {
        config.sources[0].name = "source".to_owned();
        config
    })
    .await;
    assert!(plain.len() > 10);
    assert!(plain == named);
}

/// Without an end to its passes, a source of blank lines would be read for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_gives_nothing_for_ever_is_refused() {
    let world = World::new();
    let mut config = three(&world);
    config.sources[0].paths = vec![write(&world, "blank.jsonl", b"\n\n \n")];
    config.sources[0].epochs = 0;
    let why = world.run(config).await.unwrap_err();
    assert!(why.to_string().contains("gave no document"), "{why}");
}

/// A bad line is named by the byte where it begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_line_is_named_by_its_byte() {
    let world = World::new();
    let mut config = three(&world);
    let text = format!("{}oops\n", lines(7, 10));
    let path = write(&world, "bad.jsonl", text.as_bytes());
    config.sources[2].paths.push(path.clone());
    let why = world.run(config).await.unwrap_err();
    assert_eq!(why.exit(), Exit::BadInput);
    let place = format!("bad document: {path}@{}: broken JSON", text.len() - 5);
    assert!(why.to_string().starts_with(&place), "{why}");
}

/// Shuffle needs parts: a text is one document, however large, and is refused when it is too long for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_text_is_one_document_or_refused() {
    let world = World::new();
    let path = write(&world, "huge.txt", "word ".repeat(500_000).as_bytes());
    let mut config = World::config(&[], "a");
    config.source.paths.clear();
    config.sources = vec![source("all", vec![path.clone()], 1.0, Some(1 << 20))];
    config.sources[0].format = Format::Text;
    config.source.max_document_bytes = ByteSize::mib(1);
    let why = world.run(config.clone()).await.unwrap_err();
    assert_eq!(why.exit(), Exit::BadInput);
    let expected = format!(
        "bad document: {path}: the document is longer than 1048576 bytes; split it, or raise source.max_document_bytes"
    );
    assert!(why.to_string().starts_with(&expected), "{why}");
    let world = World::new();
    config.source.max_document_bytes = ByteSize::mib(64);
    config.sources[0].paths = vec![write(
        &world,
        "huge.txt",
        "word ".repeat(500_000).as_bytes(),
    )];
    config.stream.seq_len = 4096;
    world.run(config).await.unwrap();
    let batches = world.payloads().await.len();
    assert!(batches > 100, "{batches}");
}
