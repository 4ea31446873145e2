//! The shapes of files that say little about themselves.

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::super::tests::{list, options};
use super::*;
use crate::sources::Format;

/// Sizes come from the lengths of columns, which every footer has.
#[tokio::test]
async fn row_groups_without_statistics_have_their_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let schema = parse_message_type("message m { required binary text (UTF8); }").unwrap();
    let properties = WriterProperties::builder()
        .set_statistics_enabled(EnabledStatistics::None)
        .set_compression(Compression::SNAPPY)
        .build();
    let file = std::fs::File::create(&path).unwrap();
    let mut writer =
        SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties)).unwrap();
    for rows in [1000_usize, 10] {
        let texts: Vec<ByteArray> = (0..rows)
            .map(|n| format!("{n} ").repeat(50).as_str().into())
            .collect();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let typed = column.typed::<ByteArrayType>();
        typed.write_batch(&texts, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
    let files = list(&path).await.files;
    let found = shapes(files, &Arc::new(options(Format::Auto)))
        .await
        .unwrap();
    let [FileShape::RowGroups(groups)] = found.as_slice() else {
        panic!("{found:?}")
    };
    let [(1000, large), (10, small)] = groups.as_slice() else {
        panic!("{groups:?}")
    };
    assert!((190_000..220_000).contains(large), "{large}");
    assert!((1000..3000).contains(small), "{small}");
}

#[tokio::test]
async fn a_text_is_read_as_a_whole_and_lines_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "text").unwrap();
    std::fs::write(folder.path().join("b.jsonl"), "{}\n").unwrap();
    let files = list(folder.path()).await.files;
    let found = shapes(files, &Arc::new(options(Format::Auto)))
        .await
        .unwrap();
    let whole = FileShape::Whole { compressed: false };
    assert_eq!(found, [whole, FileShape::Lines]);
}
