//! Blocks of objects: their content is that of files, little more than their bytes is read, and requests of many blocks
//! are on their way together.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use batchweave_core::order::{
    Block, Blocks, Documents, OpenBlock, Portion, Position, Quota, Shuffle, SourceOrder, Span, Walk,
};
use batchweave_store::layer::Intercept;
use batchweave_store::memory::MemoryStore;
use batchweave_store::{Chunks, ErrorKind, Store, StoreError};
use futures::FutureExt;
use tokio::sync::watch;

use super::columns::tests::{SCHEMA, parquet};
use super::shards::tests::shard;
use super::tests::{gzip, lines, list, options};
use super::*;

const MIB: u64 = 1 << 20;

/// A store that counts ranged reads, and answers the first ones when a number of them has begun.
#[derive(Debug)]
struct Gate {
    inner: Arc<MemoryStore>,
    begun: watch::Sender<usize>,
    opens_at: AtomicUsize,
    bytes: AtomicU64,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::new(),
            begun: watch::Sender::new(0),
            opens_at: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// From now on a read is answered when this number of them has begun.
    fn wait_for(&self, reads: usize) {
        let begun = *self.begun.borrow();
        self.opens_at.store(begun + reads, Ordering::SeqCst);
    }

    /// Uploads the files of `folder`, and returns them as input.
    async fn list(self: &Arc<Self>, folder: &Path) -> InputList {
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let bytes = std::fs::read(&path).unwrap();
            let _ = self.inner.create(&name, bytes.into()).await.unwrap();
        }
        let own: Arc<dyn Store> = self.clone();
        let open = move |_: String| {
            let own = own.clone();
            async move { Ok(own) }.boxed()
        };
        // Footers are kept by name, over all tests of this process.
        let name = folder.file_name().unwrap().to_str().unwrap();
        find_all(&[format!("memory://{name}/")], &open)
            .await
            .unwrap()
    }
}

#[async_trait]
impl Intercept for Gate {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Chunks, StoreError> {
        self.bytes
            .fetch_add(range.end - range.start, Ordering::SeqCst);
        self.begun.send_modify(|begun| *begun += 1);
        let opens_at = self.opens_at.load(Ordering::SeqCst);
        let mut begun = self.begun.subscribe();
        let all = begun.wait_for(|begun| *begun >= opens_at);
        if tokio::time::timeout(Duration::from_mins(1), all)
            .await
            .is_err()
        {
            return Err(StoreError {
                op: batchweave_store::Op::GetRange,
                location: key.to_owned(),
                kind: ErrorKind::Invalid,
                effect: batchweave_store::Effect::DidNot,
                detail: "too few reads were on their way".to_owned(),
            });
        }
        self.inner.get_range(key, range).await
    }
}

/// A unit without the name of its file.
type Found = (Place, Result<Bytes, String>, Vec<Cell>);

async fn plan(list: &InputList, options: &ReadOptions) -> Blocks {
    let shapes = shapes(list.files.clone(), &Arc::new(options.clone()))
        .await
        .unwrap();
    let files = (0..).zip(&list.files).zip(shapes);
    Blocks::plan(files.map(|((n, file), shape)| (n, file.pin.size, shape)))
}

/// Walks a shuffled pass.
async fn walk(list: InputList, options: ReadOptions) -> Vec<Found> {
    let blocks = plan(&list, &options).await;
    let shuffle = Shuffle {
        seed: 3,
        window: 2 * MIB,
    };
    let order = SourceOrder::new("s", blocks, Some(shuffle), Portion::ALL);
    let read = move || {
        let files = SourceFiles {
            list: &list,
            options: &options,
        };
        let mut walk = Walk::new(&order, files, 1, Position::default());
        let mut found = Vec::new();
        while let Some((_, unit)) = walk.next_document().unwrap() {
            let raw = unit.raw.map_err(|why| why.to_string());
            found.push((unit.place, raw, unit.cells));
        }
        found
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

fn long(format: Format) -> ReadOptions {
    ReadOptions {
        max_document_bytes: MIB,
        ..options(format)
    }
}

fn texts(n: usize, bytes: usize) -> Vec<String> {
    (0..n).map(|n| format!("{n} ").repeat(bytes / 4)).collect()
}

/// Writes a file with row groups of `rows` texts.
fn row_groups(path: &Path, texts: &[String], rows: usize) {
    let rows: Vec<Vec<Option<&str>>> = texts
        .chunks(rows)
        .map(|some| some.iter().map(|text| Some(text.as_str())).collect())
        .collect();
    let groups: Vec<&[Option<&str>]> = rows.iter().map(Vec::as_slice).collect();
    parquet(path, SCHEMA, &groups);
}

/// Writes a pair of Megatron's files with `documents` of 1,000 ids of one byte each.
fn pair(folder: &Path, documents: u64) {
    let mut index = b"MMIDIDX\x00\x00".to_vec();
    index.extend(1_u64.to_le_bytes());
    index.push(1);
    index.extend(documents.to_le_bytes());
    index.extend((documents + 1).to_le_bytes());
    index.extend((0..documents).flat_map(|_| 1000_i32.to_le_bytes()));
    index.extend((0..documents).flat_map(|n| (n * 1000).to_le_bytes()));
    index.extend((0..=documents).flat_map(u64::to_le_bytes));
    std::fs::write(folder.join("a.idx"), index).unwrap();
    let ids: Vec<u8> = (0..documents * 1000).map(|n| (n % 251) as u8).collect();
    std::fs::write(folder.join("a.bin"), ids).unwrap();
}

/// Compares a folder with the same objects in a store, and returns the bytes that were read over those of the input.
async fn as_from_files(folder: &Path, options: ReadOptions) -> f64 {
    let gate = Gate::new();
    let remote = gate.list(folder).await;
    let size: u64 = remote.files.iter().map(|file| file.pin.size).sum();
    let listed = gate.bytes.load(Ordering::SeqCst);
    let expected = walk(list(folder).await, options.clone()).await;
    assert!(expected.iter().all(|(_, raw, _)| raw.is_ok()));
    assert!(expected.len() > 100);
    assert!(walk(remote, options).await == expected);
    let read = gate.bytes.load(Ordering::SeqCst) - listed;
    read as f64 / size as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_objects_match_lines_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("a.jsonl", lines(80_000).as_bytes());
    write("b.jsonl.gz", &gzip(lines(5000).as_bytes()));
    // One block of small files.
    write("c.jsonl", lines(1000).as_bytes());
    write("d.jsonl", lines(10).as_bytes());
    write("e.jsonl.gz", &gzip(lines(10).as_bytes()));
    let ratio = as_from_files(folder.path(), long(Format::Auto)).await;
    assert!(ratio < 1.06, "{ratio}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_objects_match_rows_of_files() {
    let folder = tempfile::tempdir().unwrap();
    // Row groups of 1.1 MB, of 110 kB, and a page in a few pieces.
    row_groups(&folder.path().join("a.parquet"), &texts(2000, 2000), 500);
    row_groups(&folder.path().join("b.parquet"), &texts(2000, 2000), 50);
    row_groups(&folder.path().join("c.parquet"), &texts(30, 900_000), 30);
    let ratio = as_from_files(folder.path(), long(Format::Auto)).await;
    assert!(ratio < 1.02, "{ratio}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_objects_match_ids_of_files() {
    let folder = tempfile::tempdir().unwrap();
    pair(folder.path(), 9000);
    let megatron = ReadOptions {
        content: ReadContent::Ids { end_token: 0 },
        ..long(Format::Megatron)
    };
    let ratio = as_from_files(folder.path(), megatron.clone()).await;
    // Two of the index's three parts are read a little beyond their end.
    assert!(ratio < 1.02, "{ratio}");
    let folder = tempfile::tempdir().unwrap();
    let header = "{'descr': '<u4', 'fortran_order': False, 'shape': (5000, 500), }";
    let mut npy = b"\x93NUMPY\x01\x00".to_vec();
    npy.extend((118_u16).to_le_bytes());
    npy.extend(format!("{header:<117}\n").as_bytes());
    npy.extend((0..2_500_000_u32).flat_map(u32::to_le_bytes));
    std::fs::write(folder.path().join("a.npy"), npy).unwrap();
    let format = Format::Auto;
    let ratio = as_from_files(folder.path(), ReadOptions { format, ..megatron }).await;
    assert!(ratio < 1.01, "{ratio}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webdataset_of_objects_is_that_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let texts = texts(400, 20_000);
    let names: Vec<String> = (0..400).map(|n| format!("{n:04}.txt")).collect();
    let files = names.iter().zip(&texts);
    let files: Vec<_> = files
        .map(|(n, text)| (n.as_str(), text.as_bytes()))
        .collect();
    let tar = shard(&files);
    std::fs::write(folder.path().join("a.tar"), &tar).unwrap();
    std::fs::write(folder.path().join("b.tar.gz"), gzip(&tar)).unwrap();
    let options = ReadOptions {
        members: vec!["txt".to_owned()],
        ..long(Format::Auto)
    };
    let ratio = as_from_files(folder.path(), options.clone()).await;
    assert!(ratio < 1.02, "{ratio}");

    // From a sample on, only the rest of a plain tar is requested.
    let gate = Gate::new();
    let list = gate.list(folder.path()).await;
    let read = move |from: Place| {
        let mut reader = FileReader::open(&list.files[0], &options, from).unwrap();
        let next = || reader.next_unit().unwrap();
        let units = std::iter::from_fn(next).map(|unit| (unit.place, unit.cells));
        units.collect::<Vec<_>>()
    };
    let before = gate.clone();
    let all = tokio::task::spawn_blocking(move || {
        let all = read(Place::default());
        let begun = before.bytes.load(Ordering::SeqCst);
        assert!(read(all[350].0) == all[350..]);
        (all, before.bytes.load(Ordering::SeqCst) - begun)
    });
    let (all, requested) = all.await.unwrap();
    assert_eq!(all.len(), 400);
    assert!(requested < tar.len() as u64 / 4, "{requested}");
}

fn block(span: Span) -> OpenBlock {
    let block = Block {
        span,
        bytes: 0,
        units: None,
        exact: true,
    };
    let quota = Quota::All;
    OpenBlock { block, quota }
}

/// Opens all blocks of the folder's objects, which must begin `reads` reads before the first is answered. Returns the
/// number of their units and of all reads.
async fn opened_together(
    folder: &Path,
    options: ReadOptions,
    spans: Vec<Span>,
    reads: usize,
) -> (usize, usize) {
    let gate = Gate::new();
    let list = gate.list(folder).await;
    plan(&list, &options).await;
    gate.wait_for(reads);
    let count = move || {
        let mut files = SourceFiles {
            list: &list,
            options: &options,
        };
        let open = |span: &Span| files.open(&block(*span), 0).unwrap();
        let readers: Vec<_> = spans.iter().map(open).collect();
        readers.into_iter().flatten().map(Result::unwrap).count()
    };
    let before = *gate.begun.borrow();
    let units = tokio::task::spawn_blocking(count).await.unwrap();
    (units, *gate.begun.borrow() - before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_many_blocks_are_on_their_way_together() {
    let folder = tempfile::tempdir().unwrap();
    let text = lines(40_000);
    std::fs::write(folder.path().join("a.jsonl"), &text).unwrap();
    let part = text.len() as u64 / 10;
    let spans = (0..10).map(|n| Span::Lines {
        file: 0,
        from: n * part,
        to: if n == 9 {
            text.len() as u64
        } else {
            (n + 1) * part
        },
    });
    let options = long(Format::Auto);
    let found = opened_together(folder.path(), options.clone(), spans.collect(), 10).await;
    assert_eq!(found, (40_000, 10));

    let folder = tempfile::tempdir().unwrap();
    for n in 0..10 {
        let path = folder.path().join(format!("{n}.jsonl"));
        std::fs::write(path, lines(10)).unwrap();
    }
    let spans = vec![
        Span::Files { first: 0, last: 4 },
        Span::Files { first: 5, last: 9 },
    ];
    let found = opened_together(folder.path(), options.clone(), spans, 10).await;
    assert_eq!(found, (100, 10));

    let folder = tempfile::tempdir().unwrap();
    row_groups(&folder.path().join("a.parquet"), &texts(1000, 400), 100);
    let rows = (0..10).map(|n| Span::Rows {
        file: 0,
        from: 100 * n,
        to: 100 * (n + 1),
    });
    let found = opened_together(folder.path(), options.clone(), rows.collect(), 10).await;
    assert_eq!(found, (1000, 10));
}

/// A column of 9 MB is read in pieces, of which four are on their way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_of_one_column_are_on_their_way_together() {
    let folder = tempfile::tempdir().unwrap();
    row_groups(&folder.path().join("a.parquet"), &texts(1000, 10_000), 1000);
    let rows = Span::Rows {
        file: 0,
        from: 0,
        to: 1000,
    };
    let found = opened_together(folder.path(), long(Format::Auto), vec![rows], 4).await;
    assert_eq!(found.0, 1000);
}
