//! Every division of a file into ranges gives each of its lines once.

use std::path::Path;

use batchweave_core::order::{Block, Quota};

use super::super::{Format, InputFile, Location, PinnedFile, Portion, ReadContent};
use super::*;

fn input(path: &Path, content: &[u8], by_byte: bool) -> InputFile {
    std::fs::write(path, content).unwrap();
    let name = path.display().to_string();
    let mut pin = PinnedFile::new(name, content.len() as u64, content, b"");
    pin.by_byte = by_byte;
    let location = Location::Local(path.to_owned());
    InputFile { pin, location }
}

fn options() -> ReadOptions {
    ReadOptions {
        format: Format::Lines,
        content: ReadContent::Documents,
        column: String::new(),
        arrays: Vec::new(),
        beside: Vec::new(),
        members: Vec::new(),
        max_document_bytes: 1 << 20,
        decompress_memory: 512 << 20,
        share: Portion::ALL,
        inbox: false,
        sparse: false,
    }
}

/// A block at `span`, all of which is read.
fn whole(span: Span) -> OpenBlock {
    OpenBlock {
        block: Block {
            span,
            bytes: 0,
            units: None,
            exact: true,
        },
        quota: Quota::All,
    }
}

fn read(list: &InputList, span: Span, from: u64) -> Vec<(u32, u64, String)> {
    let options = options();
    let mut files = SourceFiles {
        list,
        options: &options,
    };
    let units = files.open(&whole(span), from).unwrap().map(|unit| {
        let unit = unit.unwrap();
        let text = String::from_utf8(unit.raw.unwrap().into()).unwrap();
        (unit.place.file, unit.place.unit, text)
    });
    units.collect()
}

#[test]
fn ranges_hold_each_line_once() {
    let folder = tempfile::tempdir().unwrap();
    for text in [
        "a\nbcd\n\nefghi\nj",
        "\n\n\n",
        "abc",
        "abcdefgh\n",
        "a\r\nb\n",
    ] {
        let size = text.len() as u64;
        let file = input(&folder.path().join("a.txt"), text.as_bytes(), true);
        let list = InputList::of(vec![file]);
        let whole = read(&list, Span::Files { first: 0, last: 0 }, 0);
        assert_eq!(whole.len(), text.lines().count());
        for cut in 1..size {
            let of = |from, to| read(&list, Span::Lines { file: 0, from, to }, 0);
            let both = [of(0, cut), of(cut, size)].concat();
            assert_eq!(both, whole, "{text:?} at {cut}");
        }
        let skipped = read(
            &list,
            Span::Lines {
                file: 0,
                from: 0,
                to: size,
            },
            1,
        );
        assert_eq!(skipped, whole[1..]);
    }
}

#[test]
fn a_run_of_files_is_read_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, b"four\nfive\n").unwrap();
    let list = InputList {
        files: vec![
            input(&path("a"), b"one\ntwo\n", true),
            input(&path("b"), b"three\n", true),
            input(&path("c"), &packed.finish().unwrap(), false),
        ],
        ..InputList::default()
    };
    let text = |n: u32, unit, text: &str| (n, unit, text.to_owned());
    let all = [
        text(0, 0, "one"),
        text(0, 4, "two"),
        text(1, 0, "three"),
        text(2, 0, "four"),
        text(2, 1, "five"),
    ];
    let span = Span::Files { first: 0, last: 2 };
    assert_eq!(read(&list, span, 0), all);
    assert_eq!(read(&list, span, 3), all[3..]);
}

/// Documents that a file has after it was listed belong to no block, and its size says so.
#[tokio::test]
async fn a_file_that_grew_since_it_was_listed_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let packed = super::super::tests::gzip(b"one\ntwo\n");
    let mut list = InputList {
        files: vec![
            input(&path("a"), b"one\ntwo\n", true),
            input(&path("b"), &packed, false),
        ],
        ..InputList::default()
    };
    let parquet = path("c.parquet");
    super::super::columns::tests::parquet(
        &parquet,
        super::super::columns::tests::SCHEMA,
        &[&[Some("a"), Some("b")]],
    );
    let content = std::fs::read(&parquet).unwrap();
    list.files.push(input(&parquet, &content, false));
    let spans = [
        (
            Format::Lines,
            Span::Lines {
                file: 0,
                from: 0,
                to: 4,
            },
        ),
        (Format::Lines, Span::Files { first: 1, last: 1 }),
        (
            Format::Parquet,
            Span::Rows {
                file: 2,
                from: 0,
                to: 2,
            },
        ),
    ];
    for (file, (format, span)) in list.files.iter().zip(spans) {
        let Location::Local(path) = &file.location else {
            continue;
        };
        let mut grown = std::fs::read(path).unwrap();
        let was = grown.len();
        grown.extend(b"three\n");
        std::fs::write(path, grown).unwrap();
        let options = ReadOptions {
            format,
            column: "text".to_owned(),
            ..options()
        };
        let why = first_error(&list, &options, span);
        let expected = format!(
            "{}: can't be read: it changed from {was} to {} bytes while it was in use",
            path.display(),
            was + 6
        );
        assert!(why.starts_with(&expected), "{why}");
    }
}

fn first_error(list: &InputList, options: &ReadOptions, span: Span) -> String {
    let mut files = SourceFiles { list, options };
    let units = files.open(&whole(span), 0);
    let first = units.and_then(|mut units| units.next().unwrap());
    first.unwrap_err().to_string()
}
