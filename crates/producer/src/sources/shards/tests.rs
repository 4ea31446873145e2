//! Samples of shards in every compression, and from every place on. `damaged` has bad ones.

use std::path::Path;
use std::sync::Arc;

use batchweave_core::order::{Block, Documents, FileShape, OpenBlock, Quota, Span};
use tar::{Builder, EntryType, Header};

use super::super::tests::{gzip, list, options, read};
use super::super::{
    FileReader, Format, InputList, Place, Portion, ReadOptions, SourceFiles, Unit, shapes,
};
use super::*;

mod damaged;

/// Appends an entry of any type.
fn entry(tar: &mut Builder<Vec<u8>>, kind: EntryType, name: &str, data: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(data.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, name, data).unwrap();
}

pub(in crate::sources) fn shard(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (name, data) in files {
        entry(&mut tar, EntryType::Regular, name, data);
    }
    tar.into_inner().unwrap()
}

/// A record of an extended header.
fn record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let length = (1..99999).find(|length: &usize| length.to_string().len() + rest.len() == *length);
    format!("{}{rest}", length.unwrap())
}

/// Eight samples, with everything between them that belongs to none.
fn everything() -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    let global = record("comment", "of the whole archive");
    entry(
        &mut tar,
        EntryType::XGlobalHeader,
        "global",
        global.as_bytes(),
    );
    let long = format!("{}/", "folder".repeat(30));
    for n in 0..8 {
        entry(&mut tar, EntryType::Directory, &format!("{n}"), b"");
        let base = if n % 2 == 0 {
            format!("{long}{n}")
        } else {
            format!("{n}/{n}")
        };
        entry(&mut tar, EntryType::Regular, "README", b"no dot");
        let image = vec![n as u8; 10 * n];
        if n == 5 {
            // The name in the header itself is another one.
            let name = record("path", "五/五.JPG");
            entry(&mut tar, EntryType::XHeader, "pax", name.as_bytes());
            entry(&mut tar, EntryType::Regular, "no-name", &image);
            entry(&mut tar, EntryType::Regular, "五/五.cls", b"5");
            continue;
        }
        entry(&mut tar, EntryType::Regular, &format!("{base}.jpg"), &image);
        entry(&mut tar, EntryType::Symlink, &format!("{base}.link"), b"");
        entry(&mut tar, EntryType::Regular, &format!("{base}.json"), b"{}");
        entry(&mut tar, EntryType::Regular, "__meta__/x.cls", b"none");
        entry(
            &mut tar,
            EntryType::Regular,
            &format!("{base}.cls"),
            n.to_string().as_bytes(),
        );
    }
    tar.into_inner().unwrap()
}

fn wanting(members: &[&str]) -> ReadOptions {
    ReadOptions {
        members: members.iter().map(ToString::to_string).collect(),
        ..options(Format::Auto)
    }
}

type Found = (Place, Result<String, String>, Vec<Cell>);

fn found(units: Vec<Unit>) -> Vec<Found> {
    let key = |raw: bytes::Bytes| String::from_utf8(raw.into()).unwrap();
    let parts = |unit: Unit| {
        let raw = unit.raw.map(key).map_err(|why| why.to_string());
        (unit.place, raw, unit.cells)
    };
    units.into_iter().map(parts).collect()
}

async fn input(folder: &Path, name: &str, bytes: &[u8]) -> InputList {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    list(&path).await
}

#[tokio::test]
async fn every_compression_reads_the_same_webdataset_from_every_sample() {
    let folder = tempfile::tempdir().unwrap();
    let (tar, options) = (everything(), wanting(&["jpg", "cls"]));
    let mut all: Option<Vec<Found>> = None;
    for (name, bytes) in [
        ("a.tar", tar.clone()),
        ("a.tar.gz", gzip(&tar)),
        ("a.TGZ", gzip(&tar)),
        ("a.tar.zst", zstd::encode_all(&tar[..], 1).unwrap()),
    ] {
        let inputs = input(folder.path(), name, &bytes).await;
        let units = found(read(&inputs, &options, Place::default()));
        assert_eq!(units.len(), 8, "{name}");
        for (n, unit) in units.iter().enumerate() {
            assert_eq!((unit.0.unit, unit.0.offset == 0), (n as u64, n == 0));
            let cells = [vec![n as u8; 10 * n], n.to_string().into_bytes()];
            assert_eq!(unit.2, cells.map(|cell| Cell::Bytes(cell.into())), "{name}");
            assert!(unit.1.as_ref().unwrap().ends_with(&format!("/{n}")) || n == 5);
            let again = found(read(&inputs, &options, unit.0));
            assert_eq!(again, units[n..], "{name} from {n}");
        }
        assert_eq!(units[5].1.as_deref(), Ok("五/五"));
        assert_eq!(*all.get_or_insert(units.clone()), units, "{name}");
    }
}

#[tokio::test]
async fn shares_of_a_webdataset_are_disjoint_and_complete() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = input(folder.path(), "a.tar", &everything()).await;
    let whole = found(read(&inputs, &wanting(&["cls"]), Place::default()));
    let mut all = Vec::new();
    for index in 0..3 {
        let options = ReadOptions {
            share: Portion { index, of: 3 },
            ..wanting(&["cls"])
        };
        let own = found(read(&inputs, &options, Place::default()));
        for (n, unit) in own.iter().enumerate() {
            assert_eq!(found(read(&inputs, &options, unit.0)), own[n..]);
        }
        all.extend(own);
    }
    all.sort_by_key(|unit| unit.0.unit);
    assert_eq!(all, whole);
}

#[tokio::test]
async fn a_webdataset_is_read_in_blocks_of_whole_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.tar"), everything()).unwrap();
    let two = shard(&[("x.cls", b"1"), ("y.cls", b"2")]);
    std::fs::write(folder.path().join("b.tar.gz"), gzip(&two)).unwrap();
    let (list, options) = (list(folder.path()).await, wanting(&["cls"]));
    let found = shapes(list.files.clone(), &Arc::new(options.clone())).await;
    let whole = |compressed| FileShape::Whole { compressed };
    assert_eq!(found.unwrap(), [whole(false), whole(true)]);
    let block = Block {
        span: Span::Files { first: 0, last: 1 },
        bytes: 0,
        units: None,
        exact: true,
    };
    for from in 0..10 {
        let mut files = SourceFiles {
            list: &list,
            options: &options,
        };
        let quota = Quota::All;
        let units = files.open(&OpenBlock { block, quota }, from).unwrap();
        let numbers = units.map(|unit| unit.unwrap().place);
        let numbers: Vec<_> = numbers.map(|place| (place.file, place.unit)).collect();
        let all = (0..8).map(|n| (0, n)).chain((0..2).map(|n| (1, n)));
        assert_eq!(numbers, all.skip(from as usize).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn the_first_of_the_alternatives_in_a_webdataset_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let files: [(&str, &[u8]); 6] = [
        ("a.png", b"second"),
        ("a.jpg", b"first"),
        ("b.jpg", b"first"),
        ("b.png", b"second"),
        ("c.PNG", b"second"),
        ("c.seg.jpg", b"another field"),
    ];
    let inputs = input(folder.path(), "a.tar", &shard(&files)).await;
    let units = read(
        &inputs,
        &wanting(&["jpg; Png", "png;jpg"]),
        Place::default(),
    );
    let cells = units.into_iter().map(|unit| unit.cells);
    let texts = |cell: &Cell| match cell {
        Cell::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    let found: Vec<Vec<String>> = cells
        .map(|cells| cells.iter().map(texts).collect())
        .collect();
    assert_eq!(
        found,
        [
            ["first", "second"],
            ["first", "second"],
            ["second", "second"]
        ]
    );
}

#[tokio::test]
async fn progress_within_a_webdataset_is_in_bytes_as_stored() {
    let folder = tempfile::tempdir().unwrap();
    let tar = everything();
    for (name, bytes) in [("a.tar", tar.clone()), ("a.tar.gz", gzip(&tar))] {
        let inputs = input(folder.path(), name, &bytes).await;
        let options = wanting(&["cls"]);
        let file = &inputs.files[0];
        let mut reader = FileReader::open(file, &options, Place::default()).unwrap();
        let mut seen = vec![reader.consumed()];
        while reader.next_unit().unwrap().is_some() {
            seen.push(reader.consumed());
        }
        seen.push(reader.consumed());
        assert!(seen.is_sorted() && seen[4] > 0, "{name}: {seen:?}");
        assert_eq!(seen.last(), Some(&file.pin.size));
    }
}
