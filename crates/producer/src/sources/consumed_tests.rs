//! The bytes of a stored file up to the next unit, in every format.

use super::columns::tests::{SCHEMA, parquet};
use super::tests::{gzip, lines, list, options};
use super::*;

/// Returns the bytes after each unit, and at the end.
async fn consumed(name: &str, content: Option<Vec<u8>>) -> (Vec<u64>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    match content {
        Some(bytes) => std::fs::write(&path, bytes).unwrap(),
        None => parquet(
            &path,
            SCHEMA,
            &[&[Some("a"), Some("b")], &[Some("c"), None]],
        ),
    }
    let inputs = list(&path).await;
    let (file, options) = (&inputs.files[0], options(Format::Auto));
    let mut reader = FileReader::open(file, &options, Place::default()).unwrap();
    let mut seen = vec![reader.consumed()];
    while reader.next_unit().unwrap().is_some() {
        seen.push(reader.consumed());
    }
    seen.push(reader.consumed());
    (seen, file.pin.size)
}

#[tokio::test]
async fn progress_within_a_file_is_in_bytes_as_stored() {
    let text = lines(3000);
    let (plain, size) = consumed("a.jsonl", Some(text.clone().into_bytes())).await;
    assert_eq!((plain[0], plain.len()), (0, 3002));
    assert_eq!(plain[1] as usize, text.find('\n').unwrap() + 1);
    let packed = gzip(text.as_bytes());
    let (packed, packed_size) = consumed("a.jsonl.gz", Some(packed)).await;
    assert!(packed_size < size && packed.is_sorted(), "{packed_size}");
    let (rows, rows_size) = consumed("a.parquet", None).await;
    let quarters: Vec<u64> = (0..=4).map(|n| rows_size * n / 4).collect();
    assert_eq!(rows[..5], quarters);
    let (whole, whole_size) = consumed("a.txt", Some(b"one document".to_vec())).await;
    assert_eq!(whole, [0, 12, 12], "a text is one unit");
    for (seen, size) in [
        (plain, size),
        (packed, packed_size),
        (rows, rows_size),
        (whole, whole_size),
    ] {
        assert_eq!(seen.last(), Some(&size), "the end");
    }
}
