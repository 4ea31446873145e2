//! Files of Arrow that are whole, cut, or say what is not so.

use std::sync::Arc;

use arrow_array::types::UInt64Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Int64Array, ListArray, NullArray, StringArray, UInt64Array,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};

use super::super::row_json::{ConversationColumns, RowValue as _};
use super::super::tests::{gzip, list, options};
use super::super::{Cell, FileReader, Format, Place, Unit};
use super::*;

fn batch(texts: &[&str]) -> RecordBatch {
    let columns = [
        (
            "text",
            Arc::new(StringArray::from(texts.to_vec())) as ArrayRef,
        ),
        ("n", Arc::new(Int64Array::from(vec![7; texts.len()]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Returns two batches of three rows and one, as a file and as a stream.
fn both() -> [Vec<u8>; 2] {
    let batches = [batch(&["One", "Two", "Three"]), batch(&["Four"])];
    let schema = batches[0].schema();
    let mut file = FileWriter::try_new(Vec::new(), &schema).unwrap();
    let mut stream = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    for batch in &batches {
        file.write(batch).unwrap();
        stream.write(batch).unwrap();
    }
    file.finish().unwrap();
    stream.finish().unwrap();
    [file.into_inner().unwrap(), stream.into_inner().unwrap()]
}

async fn read(name: &str, bytes: &[u8]) -> Vec<Unit> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let inputs = list(&path).await;
    let options = options(Format::Auto);
    let open = |from| FileReader::open(&inputs.files[0], &options, from).unwrap();
    let mut reader = open(Place::default());
    let mut units: Vec<Unit> = Vec::new();
    while let Some(unit) = reader.next_unit().unwrap() {
        units.push(unit);
    }
    // Each place is one from which another reader gives the same.
    for unit in units.iter().filter(|unit| unit.raw.is_ok()) {
        let again = open(unit.place).next_unit().unwrap().unwrap();
        assert_eq!((again.place, &again.raw), (unit.place, &unit.raw));
    }
    units
}

fn shown(units: Vec<Unit>) -> Vec<String> {
    let one = |unit: Unit| match unit.raw {
        Ok(text) => String::from_utf8(text.to_vec()).unwrap(),
        Err(why) => why.to_string(),
    };
    units.into_iter().map(one).collect()
}

#[tokio::test]
async fn files_and_streams_are_read_row_by_row() {
    for bytes in both() {
        let wanted = ["One", "Two", "Three", "Four"];
        for name in ["a.arrow", "a.feather", "a.IPC"] {
            assert_eq!(shown(read(name, &bytes).await), wanted, "{name}");
        }
        assert_eq!(shown(read("a.arrow.gz", &gzip(&bytes)).await), wanted);
    }
    assert!(read("a.arrow", b"").await.is_empty());
}

/// A writer that died leaves no mark of the end, even where it died between two batches. A file has no footer then.
#[tokio::test]
async fn a_file_that_is_cut_is_named() {
    let [file, stream] = both();
    for length in 1..file.len() {
        let said = shown(read("a.arrow", &file[..length]).await);
        assert_eq!(said.len(), 1, "{length}");
        assert!(said[0].starts_with("not readable as Arrow ("), "{length}");
    }
    for length in 1..stream.len() {
        let units = shown(read("a.arrow", &stream[..length]).await);
        let (last, rows) = units.split_last().unwrap();
        assert_eq!(rows, &["One", "Two", "Three", "Four"][..rows.len()]);
        assert!(
            last.starts_with("not readable as Arrow ("),
            "{length}: {last}"
        );
    }
}

/// Polars gives its first message no length.
#[tokio::test]
async fn a_file_is_read_where_its_footer_says() {
    let [mut file, _] = both();
    file[8..72].fill(0x55);
    assert_eq!(
        shown(read("a.arrow", &file).await),
        ["One", "Two", "Three", "Four"]
    );
    let packed = shown(read("a.arrow.gz", &gzip(&file)).await);
    assert!(
        packed[0].starts_with("not readable as Arrow ("),
        "{packed:?}"
    );
}

/// Each byte in turn is another one: nothing panics, and memory stays near the size of the file.
#[tokio::test]
async fn bytes_that_were_changed_end_in_a_reason_or_in_rows() {
    for bytes in both() {
        for at in 0..bytes.len() {
            for value in [0x00, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let units = read("a.arrow", &changed).await;
                assert!(units.len() < 10, "{at}: {} units", units.len());
            }
        }
    }
}

#[test]
fn whole_numbers_without_sign_keep_their_value() {
    let large = vec![7, u64::MAX];
    let list =
        ListArray::from_iter_primitive::<UInt64Type, _, _>([Some(large.iter().map(|n| Some(*n)))]);
    let list: ArrayRef = Arc::new(list);
    assert_eq!(values::cell(&list, 0), Ok(Cell::Unsigned(large.clone())));
    let plain: ArrayRef = Arc::new(UInt64Array::from(large));
    assert_eq!(values::cell(&plain, 1), Ok(Cell::Unsigned(vec![u64::MAX])));
    let keys = UInt64Array::from(vec![1, 0]);
    let dictionary: ArrayRef = Arc::new(DictionaryArray::new(keys, plain));
    assert_eq!(
        values::cell(&dictionary, 0),
        Ok(Cell::Unsigned(vec![u64::MAX]))
    );
}

/// Tables have a column of this type where no row has a value.
#[test]
fn columns_of_the_type_null_hold_nulls() {
    holds_null(Arc::new(NullArray::new(1)));
}

#[test]
fn a_dictionary_whose_value_is_null_holds_a_null() {
    let values: ArrayRef = Arc::new(StringArray::from(vec![None, Some("x")]));
    let keys = UInt64Array::from(vec![0, 1]);
    let column: ArrayRef = Arc::new(DictionaryArray::new(keys, values));
    assert!(!values::is_null(&column, 1));
    holds_null(column);
}

fn holds_null(column: ArrayRef) {
    let columns = ConversationColumns {
        wanted: Vec::new(),
        optional: Vec::new(),
        content_key: String::new(),
        verbatim: true,
        setting: "",
    };
    let value = json::Value {
        column: &column,
        row: 0,
    };
    let mut json = String::new();
    value.put(&mut json, &columns).unwrap();
    assert_eq!((value.is_null(), json.as_str()), (true, "null"));
    assert_eq!(values::cell(&column, 0), Err(Reason::Null));
}

#[tokio::test]
async fn what_else_has_these_names_is_said() {
    let feather = b"FEA1\0\0\0\0FEA1";
    let said = shown(read("a.feather", feather).await);
    assert!(
        said[0].contains("first version; write it again"),
        "{said:?}"
    );
    for other in [
        &b"PAR1\0\0\0\0"[..],
        b"a,b\n1,2\n",
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    ] {
        let said = shown(read("a.arrow", other).await);
        assert!(said[0].starts_with("not readable as Arrow ("), "{said:?}");
    }
}
