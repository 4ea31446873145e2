//! Files of every kind, from every place on, whole and damaged.

use std::io::Write;
use std::path::Path;

use batchweave_store::memory::MemoryStore;
use batchweave_store::{OpenOptions, Store};
use futures::FutureExt;

use super::columns::tests::{SCHEMA, parquet};
use super::*;

pub(super) fn options(format: Format) -> ReadOptions {
    ReadOptions {
        format,
        content: ReadContent::Documents,
        column: "text".into(),
        arrays: Vec::new(),
        beside: Vec::new(),
        members: Vec::new(),
        max_document_bytes: 100,
        decompress_memory: 512 << 20,
        share: Portion::ALL,
        inbox: false,
        sparse: false,
    }
}

pub(super) async fn list(path: &Path) -> InputList {
    let paths = [path.display().to_string()];
    let never = |_: String| -> futures::future::BoxFuture<'static, _> { unreachable!("no store") };
    find_all(&paths, &never).await.unwrap()
}

pub(super) fn read(inputs: &InputList, options: &ReadOptions, from: Place) -> Vec<Unit> {
    let file = &inputs.files[from.file as usize];
    let mut reader = FileReader::open(file, options, from).unwrap();
    let mut units = Vec::new();
    while let Some(unit) = reader.next_unit().unwrap() {
        units.push(unit);
    }
    units
}

pub(super) fn raw(units: &[Unit]) -> Vec<Result<&str, String>> {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    units
        .iter()
        .map(|u| u.raw.as_deref().map(text).map_err(ToString::to_string))
        .collect()
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

pub(super) fn lines(n: usize) -> String {
    let line = |i: usize| format!("{{\"text\":\"line {i} {}\"}}", "x".repeat(i % 37));
    (0..n).map(line).collect::<Vec<_>>().join("\n") + "\n"
}

#[tokio::test]
async fn every_compression_reads_the_same_from_every_place() {
    let folder = tempfile::tempdir().unwrap();
    let text = lines(300);
    // Two members, as `cat a.gz b.gz` makes.
    let halves = text.split_at(text.find("{\"text\":\"line 150").unwrap());
    let files = [
        ("a.jsonl", text.clone().into_bytes()),
        (
            "a.jsonl.gz",
            [gzip(halves.0.as_bytes()), gzip(halves.1.as_bytes())].concat(),
        ),
        (
            "a.jsonl.zst",
            [
                zstandard(halves.0.as_bytes()),
                zstandard(halves.1.as_bytes()),
            ]
            .concat(),
        ),
        // The content selects the codec, not the name.
        ("b.jsonl", gzip(text.as_bytes())),
    ];
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let inputs = list(&path).await;
        let options = options(Format::Auto);
        let all = read(&inputs, &options, Place::default());
        assert_eq!(all.len(), 300, "{name}");
        for k in [0, 1, 149, 150, 299] {
            let again = read(&inputs, &options, all[k].place);
            assert_eq!(raw(&again), raw(&all[k..]), "{name} from {k}");
            assert_eq!(again[0].place, all[k].place);
        }
    }
}

#[tokio::test]
async fn shares_are_disjoint_and_complete() {
    let folder = tempfile::tempdir().unwrap();
    for (name, n) in [("a.jsonl", 10), ("b.jsonl", 7), ("c.jsonl", 1)] {
        std::fs::write(folder.path().join(name), lines(n)).unwrap();
    }
    let inputs = list(folder.path()).await;
    let mut seen = Vec::new();
    for index in 0..3 {
        let options = ReadOptions {
            share: Portion { index, of: 3 },
            ..options(Format::Auto)
        };
        for file in 0..3 {
            let units = read(
                &inputs,
                &options,
                Place {
                    file,
                    ..Place::default()
                },
            );
            seen.extend(units.iter().map(|u| (u.place.file, u.place.unit, index)));
        }
    }
    seen.sort_unstable();
    let expected: Vec<(u32, u64, u32)> = [(0u32, 10u64), (1, 7), (2, 1)]
        .into_iter()
        .flat_map(|(f, n)| (0..n).map(move |u| (f, u, ((u64::from(f) + u) % 3) as u32)))
        .collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn truncated_or_damaged_compression_is_one_bad_document_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = lines(3000);
    let mut flipped = gzip(text.as_bytes());
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x55;
    let cut = |mut bytes: Vec<u8>| {
        bytes.truncate(bytes.len() / 2);
        bytes
    };
    for (name, codec, bytes) in [
        ("a.gz", "gzip", cut(gzip(text.as_bytes()))),
        ("b.zst", "zstd", cut(zstandard(text.as_bytes()))),
        ("c.gz", "gzip", flipped),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let inputs = list(&path).await;
        for format in [Format::Lines, Format::Text] {
            let options = ReadOptions {
                max_document_bytes: 1 << 20,
                ..options(format)
            };
            let units = read(&inputs, &options, Place::default());
            let last = units.last().unwrap();
            let why = DocumentError::new(
                name,
                format,
                last.place.unit,
                last.raw.as_ref().unwrap_err().clone(),
            )
            .to_string();
            assert!(
                why.contains(&format!("the {codec} data ends early or is damaged here")),
                "{why}"
            );
            let place = if format == Format::Lines {
                format!("{name}:{}: ", units.len())
            } else {
                format!("{name}: ")
            };
            assert!(why.starts_with(&place), "{why}");
            assert!(units[..units.len() - 1].iter().all(|u| u.raw.is_ok()));
        }
    }
}

/// 200 MB in one line take bounded memory and are one bad document; the next line is read.
#[tokio::test]
async fn a_200_mb_line_is_refused_and_passed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.jsonl");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    file.write_all(b"{\"text\":\"").unwrap();
    for _ in 0..200 {
        file.write_all(&vec![b'x'; 1 << 20]).unwrap();
    }
    file.write_all(b"\"}\n{\"text\":\"after\"}\n").unwrap();
    file.into_inner().unwrap();
    let inputs = list(&path).await;
    let units = read(&inputs, &options(Format::Auto), Place::default());
    assert_eq!(units.len(), 2);
    let why = units[0].raw.as_ref().unwrap_err().to_string();
    assert_eq!(
        why,
        "the document is longer than 100 bytes; split it, or raise source.max_document_bytes"
    );
    assert_eq!(units[1].raw.as_deref().unwrap(), b"{\"text\":\"after\"}");
}

#[tokio::test]
async fn objects_of_a_store_read_like_files() {
    let folder = tempfile::tempdir().unwrap();
    let big = lines(200_000);
    let path = folder.path().join("p.parquet");
    parquet(&path, SCHEMA, &[&[Some("a"), Some("b")], &[Some("c")]]);
    let store = MemoryStore::named("sources-test/c");
    for (key, bytes) in [
        ("b.jsonl", big.into_bytes()),
        ("a.txt", b"text".to_vec()),
        ("d/p.parquet", std::fs::read(&path).unwrap()),
        (".hidden", b"no".to_vec()),
    ] {
        let _ = store.create(key, bytes.into()).await.unwrap();
    }
    let open = |url: String| {
        async move { batchweave_store::open(&url, &OpenOptions::default()).await }.boxed()
    };
    let names = async |path: &str| {
        let list = find_all(&[format!("memory://sources-test/{path}")], &open)
            .await
            .unwrap();
        list.files
            .iter()
            .map(|f| f.pin.name["memory://sources-test/c/".len()..].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("c/").await, ["a.txt", "b.jsonl", "d/p.parquet"]);
    assert_eq!(names("c/b.jsonl").await, ["b.jsonl"]);
    assert_eq!(names("c/d").await, ["d/p.parquet"]);
    assert_eq!(names("c/*.jsonl").await, ["b.jsonl"]);
    assert_eq!(names("c/*/*").await, ["d/p.parquet"]);
    let none = find_all(&["memory://sources-test/c/x*".to_owned()], &open)
        .await
        .unwrap_err();
    assert!(none.to_string().contains("c/x* matches no file"), "{none}");

    let inputs = find_all(&["memory://sources-test/c/".to_owned()], &open)
        .await
        .unwrap();
    let units = tokio::task::spawn_blocking(move || {
        let options = ReadOptions {
            max_document_bytes: 1 << 30,
            ..options(Format::Auto)
        };
        (0..3)
            .map(|file| {
                read(
                    &inputs,
                    &options,
                    Place {
                        file,
                        ..Place::default()
                    },
                )
            })
            .collect::<Vec<_>>()
    });
    let units = units.await.unwrap();
    assert_eq!(raw(&units[0]), [Ok("text")]);
    assert_eq!(units[1].len(), 200_000);
    assert_eq!(raw(&units[2]), [Ok("a"), Ok("b"), Ok("c")]);
}

#[tokio::test]
async fn folders_patterns_and_duplicates() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    for name in ["b.txt", "a.txt", "sub/c.txt", ".git/x", "sub/.y"] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, name).unwrap();
    }
    let never = |_: String| -> futures::future::BoxFuture<'static, _> { unreachable!("no store") };
    let names = async |paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(|p| format!("{root}/{p}")).collect();
        let list = find_all(&paths, &never).await.map_err(|e| e.to_string())?;
        Ok::<_, String>(
            list.files
                .iter()
                .map(|f| f.pin.name[root.len() + 1..].to_owned())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        names(&["."]).await.unwrap(),
        ["./a.txt", "./b.txt", "./sub/c.txt"]
    );
    assert_eq!(
        names(&["b*", "a.txt", "b.txt"]).await.unwrap(),
        ["b.txt", "a.txt"]
    );
    assert_eq!(
        names(&["**/*.txt"]).await.unwrap(),
        ["a.txt", "b.txt", "sub/c.txt"]
    );
    assert!(
        names(&["nothing"])
            .await
            .unwrap_err()
            .contains("nothing matches no file; correct the path")
    );
    assert!(
        names(&["a[*"])
            .await
            .unwrap_err()
            .contains("is not a valid pattern")
    );
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_read_is_no_end_of_the_documents() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("plain.jsonl", lines(40_000).into_bytes()),
        ("packed.jsonl.gz", gzip(noise(2 << 20).as_bytes())),
        ("packed.jsonl.zst", zstandard(noise(2 << 20).as_bytes())),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, &content).unwrap();
        let (inputs, options) = (list(&path).await, options(Format::Jsonl));
        let open = || FileReader::open(&inputs.files[0], &options, Place::default()).unwrap();
        let mut reader = open();
        reader.next_unit().unwrap().unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(content.len() as u64 / 2).unwrap();
        let why = loop {
            match reader.next_unit() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{name}: taken for the end"),
                Err(why) => break why.to_string(),
            }
        };
        let size = content.len();
        let words = format!("it changed from {size} to {} bytes while", size / 2);
        assert!(why.contains(&words), "{name}: {why}");
        // Bytes appended later are not part of this list.
        std::fs::write(&path, &content).unwrap();
        let mut reader = open();
        let first = reader.next_unit().unwrap().unwrap();
        std::fs::write(&path, [&content[..], &content[..]].concat()).unwrap();
        let mut units = vec![first];
        units.extend(std::iter::from_fn(|| reader.next_unit().unwrap()));
        let last = units.last().map(|unit| unit.place.unit);
        assert_eq!(last, Some(units.len() as u64 - 1), "{name}");
        assert!(
            units.iter().all(|unit| unit.place.offset < 4 << 20),
            "{name}"
        );
    }
}

/// Returns lines that hardly compress.
fn noise(bytes: usize) -> String {
    let mut state = 1_u64;
    let line = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        format!("{{\"text\":\"{state:016x}\"}}\n")
    };
    (0..bytes / 28).map(line).collect()
}
