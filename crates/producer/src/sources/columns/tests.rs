//! Rows from every place on, and files that cannot be used.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::sources::tests::{list, options, raw, read};
use crate::sources::{
    DocumentError, FileReader, Format, InputFile, Location, PinnedFile, Place, Reason,
};

pub(in super::super) fn parquet(path: &Path, schema: &str, groups: &[&[Option<&str>]]) {
    compressed(path, schema, groups, Compression::UNCOMPRESSED);
}

fn compressed(path: &Path, schema: &str, groups: &[&[Option<&str>]], codec: Compression) {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = std::fs::File::create(path).unwrap();
    let properties = WriterProperties::builder().set_compression(codec).build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
    for rows in groups {
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            let levels: Vec<i16> = rows.iter().map(|r| i16::from(r.is_some())).collect();
            if let parquet::column::writer::ColumnWriter::Int64ColumnWriter(_) = column.untyped() {
                let ids: Vec<i64> = (0..).take(rows.len()).collect();
                column
                    .typed::<Int64Type>()
                    .write_batch(&ids, None, None)
                    .unwrap();
            } else {
                let values: Vec<ByteArray> =
                    rows.iter().flatten().map(|t| ByteArray::from(*t)).collect();
                column
                    .typed::<ByteArrayType>()
                    .write_batch(&values, Some(&levels), None)
                    .unwrap();
            }
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

pub(in super::super) const SCHEMA: &str =
    "message m { required int64 id; optional binary text (UTF8); }";

#[tokio::test]
async fn parquet_rows_from_every_place_and_nulls() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let many: Vec<String> = (0..600).map(|i| format!("row {i}")).collect();
    let many: Vec<Option<&str>> = many.iter().map(|t| Some(t.as_str())).collect();
    parquet(
        &path,
        SCHEMA,
        &[&[Some("a"), None, Some("b")], &[], &many, &[Some("z")]],
    );
    let inputs = list(&path).await;
    let all = read(&inputs, &options(Format::Auto), Place::default());
    assert_eq!(all.len(), 604);
    assert_eq!(
        raw(&all[..3]),
        [
            Ok("a"),
            Err("the value is null; leave rows without a value out".to_owned()),
            Ok("b")
        ]
    );
    for k in [0, 1, 2, 3, 300, 602, 603] {
        assert_eq!(
            raw(&read(&inputs, &options(Format::Auto), all[k].place)),
            raw(&all[k..]),
            "from {k}"
        );
    }
}

#[tokio::test]
async fn parquet_that_can_not_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&str, &str, &str); 3] = [
        (
            "column.parquet",
            "message m { optional binary body (UTF8); }",
            "no column \"text\" in this file, which has body;",
        ),
        (
            "type.parquet",
            "message m { required int64 text; }",
            "column \"text\" is INT64, not a string",
        ),
        ("cut.parquet", SCHEMA, "not readable as Parquet"),
    ];
    for (name, schema, expected) in cases {
        let path = folder.path().join(name);
        parquet(&path, schema, &[&[Some("a")]]);
        if name == "cut.parquet" {
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }
        let units = read(&list(&path).await, &options(Format::Auto), Place::default());
        assert_eq!(units.len(), 1);
        let why = DocumentError::new(
            name,
            Format::Parquet,
            0,
            units[0].raw.as_ref().unwrap_err().clone(),
        )
        .to_string();
        assert!(why.starts_with(&format!("{name}: {expected}")), "{why}");
    }
}

/// Returns the number of bad units, and of those at which the library panicked, over all flips of one byte by `flip`.
fn damage(codec: Compression, flip: u8) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let rows: Vec<String> = (0..12).map(|n| format!("row {n}")).collect();
    let rows: Vec<Option<&str>> = rows.iter().map(|row| Some(row.as_str())).collect();
    compressed(&path, SCHEMA, &[&rows, &rows], codec);
    let whole = std::fs::read(&path).unwrap();
    let pin = PinnedFile::new("a.parquet".into(), whole.len() as u64, b"", b"");
    let location = Location::Local(path.clone());
    let file = InputFile { pin, location };
    let (options, mut bad, mut panics) = (options(Format::Auto), 0, 0);
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= flip;
        std::fs::write(&path, damaged).unwrap();
        let mut reader = FileReader::open(&file, &options, Place::default()).unwrap();
        let mut units = 0;
        // Damage in the footer or in a page is never reported as a failure of the disk.
        while let Some(unit) = reader.next_unit().unwrap() {
            units += 1;
            bad += usize::from(unit.raw.is_err());
            panics += usize::from(matches!(unit.raw, Err(Reason::Panicked { .. })));
            assert!(units < 1000, "byte {at}: no end");
        }
    }
    assert!(bad > whole.len() / 4, "{bad} of {}", whole.len());
    (bad, panics)
}

/// The library panics on some of them.
#[test]
fn a_damaged_file_gives_rows_or_a_bad_document_and_never_a_panic() {
    for (codec, flip) in [
        (Compression::UNCOMPRESSED, 0x10),
        (Compression::UNCOMPRESSED, 0xff),
        (Compression::SNAPPY, 0x10),
        (Compression::ZSTD(ZstdLevel::default()), 0x10),
        (Compression::GZIP(GzipLevel::default()), 0x10),
        (Compression::LZ4_RAW, 0x10),
        (Compression::BROTLI(BrotliLevel::default()), 0x10),
    ] {
        let (bad, panics) = damage(codec, flip);
        println!("{codec}: {bad} bad documents, of which {panics} are panics");
    }
}

/// Not a bad document: skipping it would leave out other documents than a replay does.
#[test]
fn a_parquet_file_that_shrinks_is_an_error_and_no_bad_document() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let rows: Vec<String> = (0..2000).map(|n| format!("row {n}")).collect();
    let rows: Vec<Option<&str>> = rows.iter().map(|row| Some(row.as_str())).collect();
    parquet(&path, SCHEMA, &[&rows, &rows]);
    let whole = std::fs::read(&path).unwrap();
    let pin = PinnedFile::new("a.parquet".into(), whole.len() as u64, b"", b"");
    let location = Location::Local(path.clone());
    let file = InputFile { pin, location };
    let options = options(Format::Auto);
    let mut reader = FileReader::open(&file, &options, Place::default()).unwrap();
    assert!(reader.next_unit().unwrap().unwrap().raw.is_ok());
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(100)
        .unwrap();
    let why = loop {
        match reader.next_unit() {
            Ok(Some(unit)) => assert!(unit.raw.is_ok()),
            Ok(None) => panic!("the rows have ended"),
            Err(why) => break why.to_string(),
        }
    };
    assert!(
        why.contains("a.parquet") && why.contains("it changed from"),
        "{why}"
    );
    let Err(why) = FileReader::open(&file, &options, Place::default()) else {
        panic!("opened")
    };
    assert!(why.to_string().contains("it changed from"), "{why}");
}
