//! Tables that other programs write, and what is wrong with some.

use super::super::tests::{gzip, list, options};
use super::super::{FileReader, Format, Place, Portion, ReadOptions, Unit};
use super::*;

async fn read(name: &str, bytes: &[u8], options: ReadOptions) -> Vec<Unit> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let inputs = list(&path).await;
    let open = |from| FileReader::open(&inputs.files[0], &options, from).unwrap();
    let mut reader = open(Place::default());
    let mut units: Vec<Unit> = Vec::new();
    while let Some(unit) = reader.next_unit().unwrap() {
        units.push(unit);
    }
    // Each place is one from which another reader gives the same.
    for unit in &units {
        let again = open(unit.place).next_unit().unwrap().unwrap();
        assert_eq!((again.place, &again.raw), (unit.place, &unit.raw));
    }
    units
}

/// Returns the documents, or why they are bad.
async fn documents(name: &str, text: &[u8]) -> Vec<String> {
    let units = read(name, text, options(Format::Auto)).await;
    let shown = units.into_iter().map(|unit| match unit.raw {
        Ok(json) => String::from_utf8(json.to_vec()).unwrap(),
        Err(why) => why.to_string(),
    });
    shown.collect()
}

#[tokio::test]
async fn records_are_objects_of_texts() {
    for (name, text) in [
        ("a.csv", "text,n\r\nOne,1\r\n\r\n\"a, \"\"b\"\"\nc\",\r\n"),
        ("a.CSV", "\u{feff}text,n\nOne,1\n\n\"a, \"\"b\"\"\nc\",\n"),
        ("a.tsv", "text\tn\nOne\t1\n\"a, \"\"b\"\"\nc\"\t"),
        ("a.tsv", "text\tn\rOne\t1\r\"a, \"\"b\"\"\nc\"\t\r"),
    ] {
        let wanted = [
            r#"{"text":"One","n":"1"}"#,
            r#"{"text":"a, \"b\"\nc","n":""}"#,
        ];
        assert_eq!(documents(name, text.as_bytes()).await, wanted, "{text:?}");
        let packed = documents(&format!("{name}.gz"), &gzip(text.as_bytes())).await;
        assert_eq!(packed, wanted, "{text:?}");
    }
    for nothing in ["", "\n", "text,n", "text,n\n\n"] {
        assert!(
            documents("a.csv", nothing.as_bytes()).await.is_empty(),
            "{nothing:?}"
        );
    }
}

#[tokio::test]
async fn each_bad_record_is_one_bad_document_and_names_its_fault() {
    let text = b"text,n\na\nb,2\nc,3,4\nd\xff,5\ne,6\n\"f,7\ng,8\n";
    let found = documents("a.csv", text).await;
    let parts = [
        "it has 1 values, and the first row 2 names",
        r#"{"text":"b","n":"2"}"#,
        "it has 3 values",
        "the value of \"text\" is not in UTF-8",
        r#"{"text":"e","n":"6"}"#,
        "the file ends within a quote",
    ];
    assert_eq!(found.len(), parts.len(), "{found:?}");
    for (found, part) in found.iter().zip(parts) {
        assert!(found.contains(part), "{found}: {part}");
    }
}

#[tokio::test]
async fn a_first_record_that_names_no_columns_makes_the_file_one_bad_document() {
    let many = "x,".repeat(FIELDS_MAX + 1);
    for (text, part) in [
        (&b"a,b,a\n1,2,3\n"[..], "two columns \"a\""),
        (b"a,\"b\n1,2\n", "ends within a quote"),
        (b"\xff\xfea\0,\0b\0\n\0", "not in UTF-8"),
        (b"a\0,b\n", "not in UTF-8"),
        (many.as_bytes(), "more than 10000 columns"),
    ] {
        let found = documents("a.csv", text).await;
        assert!(
            found.len() == 1 && found[0].contains(part),
            "{found:?}: {part}"
        );
    }
}

#[tokio::test]
async fn a_record_beyond_the_limit_is_not_kept() {
    let long = "x".repeat(100_000);
    let text = format!("text\nshort\n\"{long}\"\n{}\nlast\n", "\"\"\"\"".repeat(10));
    let limited = ReadOptions {
        max_document_bytes: 50_000,
        ..options(Format::Auto)
    };
    let units = read("a.csv", text.as_bytes(), limited).await;
    let long: Vec<bool> = units
        .iter()
        .map(|unit| matches!(unit.raw, Err(Reason::TooLong { .. })))
        .collect();
    assert_eq!(long, [false, true, false, false]);
}

#[tokio::test]
async fn shares_have_the_same_records_together() {
    let rows: Vec<String> = (0..200).map(|n| format!("row {n},{n}\n")).collect();
    let text = format!("text,n\n{}", rows.concat());
    let all = documents("a.csv", text.as_bytes()).await;
    let mut together = vec![String::new(); all.len()];
    for index in 0..3 {
        let share = ReadOptions {
            share: Portion { index, of: 3 },
            ..options(Format::Auto)
        };
        for unit in read("a.csv", text.as_bytes(), share).await {
            let at = unit.place.unit as usize;
            together[at] = String::from_utf8(unit.raw.unwrap().to_vec()).unwrap();
        }
    }
    assert_eq!(together, all);
}
