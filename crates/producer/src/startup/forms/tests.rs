//! The meaning of names for streams of now and of earlier releases.

use serde_json::{Map, Value, json};

use super::*;

fn pin(name: &str) -> PinnedFile {
    PinnedFile::new(name.to_owned(), 1, b"x", b"")
}

fn list(names: &[&str]) -> InputList {
    let file = |name: &&str| crate::sources::InputFile {
        pin: pin(name),
        location: crate::sources::Location::Local((*name).into()),
    };
    InputList::of(names.iter().map(file).collect())
}

fn settings(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// The one source of `[source]`.
fn source(format: Format) -> [NamedSource; 1] {
    [NamedSource {
        format,
        ..NamedSource::default()
    }]
}

/// Returns whether a cursor with the format `was` goes on with `is`, or the first fault.
fn goes_on(was: (Names, &str), is: Format, files: &[&str]) -> Result<(), String> {
    let pins: Vec<PinnedFile> = files.iter().map(|name| pin(name)).collect();
    let mut cursor = settings(json!({"source.format": was.1}));
    if was.0 == Names::AsNow {
        cursor.insert(NAMES.to_owned(), json!(2));
    }
    let now = settings(json!({"source.format": is}));
    let sources = source(is);
    let forms = Forms { sources: &sources };
    let adopted = forms.adopted(&cursor, &now, &pins);
    let mut faults = forms.differences(was.0, pins.iter());
    if adopted["source.format"] != now["source.format"] {
        faults.push("other settings".to_owned());
    }
    faults.into_iter().next().map_or(Ok(()), Err)
}

#[test]
fn names_of_now_and_of_earlier_releases() {
    for (name, now, earlier) in [
        ("a.jsonl", Format::Jsonl, Format::Jsonl),
        ("a.JSONL.gz", Format::Jsonl, Format::Jsonl),
        ("a.ndjson.zst", Format::Jsonl, Format::Jsonl),
        ("a.json", Format::Jsonl, Format::Text),
        (
            "c4-train.00000-of-00512.json.gz",
            Format::Jsonl,
            Format::Text,
        ),
        ("a.json.zst", Format::Jsonl, Format::Text),
        ("a.jl", Format::Jsonl, Format::Text),
        ("a.jsonlines", Format::Jsonl, Format::Text),
        ("a.ldjson", Format::Jsonl, Format::Text),
        ("a.jsonl.zstd", Format::Jsonl, Format::Text),
        ("a.jsonl.gzip", Format::Jsonl, Format::Text),
        ("a.jsonl.bz2", Format::Jsonl, Format::Text),
        ("a.jsonl.xz", Format::Jsonl, Format::Text),
        ("a.tar.bz2", Format::Webdataset, Format::Text),
        ("a.tgz", Format::Webdataset, Format::Webdataset),
        ("a.parquet", Format::Parquet, Format::Parquet),
        ("a.csv", Format::Csv, Format::Text),
        ("a.TSV.gz", Format::Tsv, Format::Text),
        ("a.npy", Format::Npy, Format::Npy),
        ("a.txt.gz", Format::Text, Format::Text),
        ("a.json/x", Format::Text, Format::Text),
        ("README", Format::Text, Format::Text),
    ] {
        assert_eq!(Format::Auto.for_file(name), now, "{name}");
        assert_eq!(Format::earlier_for_file(name), earlier, "{name}");
    }
    for name in [
        "a.orc",
        "a.avro.gz",
        "a.tfrecord",
        "a.zip",
        "a.7z",
        "a.lz4",
        "a.pkl",
        "a.h5",
        "a.PDF",
        "a.bin",
        "a.xlsx",
    ] {
        assert!(Format::refusal(name).is_some(), "{name}");
    }
    for name in ["a.txt", "a.md", "a.html", "a", "a.orc/x", "orc"] {
        assert_eq!(Format::refusal(name), None, "{name}");
    }
}

#[test]
fn a_stream_goes_on_exactly_where_its_files_keep_their_form() {
    use Names::{AsNow, Earlier};
    let plain = &["a.jsonl", "b.jsonl.gz"][..];
    let json = &["a.json.gz", "b.json"][..];
    for (was, is, files) in [
        ((Earlier, "auto"), Format::Auto, plain),
        ((Earlier, "auto"), Format::Jsonl, plain),
        ((AsNow, "auto"), Format::Auto, json),
        ((AsNow, "auto"), Format::Jsonl, json),
        ((Earlier, "auto"), Format::Text, json),
        ((Earlier, "jsonl"), Format::Jsonl, json),
        ((Earlier, "jsonl"), Format::Auto, plain),
        ((Earlier, "auto"), Format::Text, &["a.csv", "b.json"]),
    ] {
        assert_eq!(goes_on(was, is, files), Ok(()), "{was:?} {is:?} {files:?}");
    }
    for (was, is, files, why) in [
        (
            (Earlier, "auto"),
            Format::Auto,
            json,
            "a.json.gz: was read as text, one document each, and is read as JSON lines",
        ),
        (
            (Earlier, "auto"),
            Format::Auto,
            &["a.csv"][..],
            "a.csv: was read as text, one document each, and is read as CSV",
        ),
        ((Earlier, "auto"), Format::Jsonl, json, "other settings"),
        ((AsNow, "auto"), Format::Text, json, "other settings"),
        ((Earlier, "auto"), Format::Lines, plain, "other settings"),
        ((Earlier, "jsonl"), Format::Text, plain, "other settings"),
    ] {
        let found = goes_on(was, is, files).unwrap_err();
        assert!(found.contains(why), "{was:?} {is:?}: {found}");
    }
}

#[test]
fn cursors_of_files_whose_names_mean_the_same_stay_as_they_are() {
    let plain = settings(json!({"source.format": "auto"}));
    let marked = |source: NamedSource, names: &[&str]| {
        let forms = Forms { sources: &[source] };
        forms.marked(&plain, &list(names)).contains_key(NAMES)
    };
    let [auto] = source(Format::Auto);
    let [jsonl] = source(Format::Jsonl);
    assert!(!marked(auto.clone(), &["a.jsonl", "b.parquet", "c.txt"]));
    assert!(!marked(jsonl, &["a.json"]));
    assert!(marked(auto.clone(), &["a.jsonl", "b.json"]));
    let inbox = NamedSource {
        inbox: true,
        ..auto.clone()
    };
    let row = "inbox/writer-0/0.parquet";
    assert!(!marked(inbox, &[row]), "inboxes have Parquet alone");
    let follows = NamedSource {
        follow: true,
        ..auto
    };
    assert!(marked(follows, &["a.jsonl"]), "files of any name may join");
}

#[test]
fn files_without_a_reader_and_keys_that_text_lacks_are_refused() {
    let mut config = ProducerConfig::default();
    let why = |config: &ProducerConfig, names: &[&str]| {
        check(config, &list(names)).unwrap_err().to_string()
    };
    let orc = why(&config, &["a.orc", "b.orc", "c.jsonl"]);
    assert!(
        orc.contains("does not read a.orc (and 1 more): it has no reader"),
        "{orc}"
    );
    check(&config, &list(&["a.json", "b.txt", "c.unknown"])).unwrap();
    config.source.field = "content".to_owned();
    let field = why(&config, &["a.jsonl", "b.data"]);
    assert!(
        field.contains("takes b.data for text by the name, and source.field is set"),
        "{field}"
    );
    check(&config, &list(&["a.jsonl"])).unwrap();
    config.source.format = Format::Text;
    check(&config, &list(&["a.csv"])).unwrap();
}
