//! Every kind of mistake in a configuration file, and the one report that shows them all.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;

mod lists;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Sample {
    name: String,
    note: Option<String>,
    arena: Arena,
    poll: Poll,
    tags: Vec<String>,
    share: f64,
    on: bool,
    items: Vec<Item>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Item {
    name: String,
    paths: Vec<String>,
    share: f64,
    inner: Option<Arena>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Arena {
    bytes: ByteSize,
    segment_bytes: ByteSize,
    slots: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Poll {
    interval: Period,
    listen: Listen,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            name: "x".into(),
            note: None,
            arena: Arena::default(),
            poll: Poll::default(),
            tags: Vec::new(),
            share: 1.0,
            on: false,
            items: Vec::new(),
        }
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self {
            bytes: ByteSize::mib(64),
            segment_bytes: ByteSize::mib(16),
            slots: 4,
        }
    }
}

impl Default for Poll {
    fn default() -> Self {
        Self {
            interval: Period::millis(250),
            listen: Listen(None),
        }
    }
}

impl Config for Sample {
    fn tables_of() -> Vec<(&'static str, serde_json::Value)> {
        let item = Item {
            inner: Some(Arena::default()),
            ..Item::default()
        };
        vec![("items", serde_json::to_value(item).unwrap())]
    }

    fn stands_in(key: &str) -> &'static [&'static str] {
        match key {
            "name" => &["items", "items.*"],
            _ => &[],
        }
    }

    fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.arena.segment_bytes > self.arena.bytes {
            problems.push(Problem::new(
                "arena.segment_bytes",
                "larger than arena.bytes",
            ));
        }
        if self.name.is_empty() {
            problems.push(Problem::new("name", "must be given"));
        }
        problems
    }
}

fn problems(text: &str) -> Vec<(usize, usize, String, String)> {
    let report = parse::<Sample>("f.toml", text).expect_err("must be refused");
    let list = report.problems.into_iter();
    list.map(|p| (p.line, p.column, p.key, p.message)).collect()
}

fn one(text: &str) -> (usize, usize, String, String) {
    let mut all = problems(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn a_good_file_and_an_empty_one() {
    let config: Sample = parse(
        "f.toml",
        "note = \"n\"\ntags = [\"a\"]\n[arena]\nbytes = \"1 GiB\"\n[poll]\ninterval = \"2s\"\nlisten = \"127.0.0.1:1\"\n",
    )
    .unwrap();
    assert_eq!(config.arena.bytes, ByteSize(1 << 30));
    assert_eq!(config.poll.interval, Period(Duration::from_secs(2)));
    assert_eq!(config.note.as_deref(), Some("n"));
    assert_eq!(parse::<Sample>("f.toml", "").unwrap(), Sample::default());
}

#[test]
fn all_problems_come_in_one_report_in_order() {
    let text = "nmae = \"a\"\n[arena]\nbytes = 5\nslots = \"many\"\nsegmnt_bytes = \"1MiB\"\n\n[poll]\ninterval = \"250 parsecs\"\nlisten = \"here\"\n[extra]\na = 1\nb = 2\n";
    let found = problems(text);
    let places: Vec<(usize, usize, &str)> = found
        .iter()
        .map(|(l, c, k, _)| (*l, *c, k.as_str()))
        .collect();
    assert_eq!(
        places,
        [
            (1, 1, "nmae"),
            (3, 9, "arena.bytes"),
            (4, 9, "arena.slots"),
            (5, 1, "arena.segmnt_bytes"),
            (8, 12, "poll.interval"),
            (9, 10, "poll.listen"),
            (10, 2, "extra"),
        ],
        "{found:?}"
    );
    assert!(found[0].3.contains("did you mean `name`?"), "{found:?}");
    assert!(found[1].3.contains("5 has no unit"), "{found:?}");
    assert!(found[2].3.contains("expected a whole number"), "{found:?}");
    assert!(found[3].3.contains("`arena.segment_bytes`"), "{found:?}");
    assert!(found[4].3.contains("250ms"), "{found:?}");
    assert!(
        found[6].3.contains("known here: arena, items, name"),
        "{found:?}"
    );
}

#[test]
fn contradictions_point_at_the_line() {
    let (line, column, key, _) = one("[arena]\nsegment_bytes = \"128MiB\"\n");
    assert_eq!((line, column, key.as_str()), (2, 1, "arena.segment_bytes"));
    // The key is not in the file: its table is the nearest place.
    let (line, _, key, _) = one("name = \"a\"\n[arena]\nbytes = \"1MiB\"\n");
    assert_eq!((line, key.as_str()), (2, "arena.segment_bytes"));
}

#[test]
fn a_key_reported_once_is_not_reported_again_by_the_check() {
    let (_, _, key, message) = one("name = 7\n");
    assert_eq!(key, "name");
    assert!(message.contains("expected a string"), "{message}");
}

#[test]
fn a_key_in_the_wrong_table_finds_its_place() {
    let (.., message) = one("[poll]\nslots = 3\n");
    assert!(message.contains("`arena.slots`"), "{message}");
}

#[test]
fn several_syntax_errors_and_types_together() {
    let found = problems("name = \n[arena]\nbytes = = 3\nslots = \"x\"\n");
    let syntax = found.iter().filter(|p| p.3.starts_with("syntax: ")).count();
    assert!(syntax >= 2, "{found:?}");
    assert!(found.iter().any(|p| p.2 == "arena.slots"), "{found:?}");
}

#[test]
fn a_scalar_where_a_table_belongs_and_the_reverse() {
    assert_eq!(one("arena = 3\n").2, "arena");
    assert_eq!(one("[name]\na = 1\n").2, "name");
    assert_eq!(one("tags = [1]\n").2, "tags");
}

#[test]
fn a_missing_file_is_named() {
    let why = load::<Sample>(std::path::Path::new("/nonexistent/f.toml")).expect_err("absent");
    assert!(
        why.to_string()
            .contains("/nonexistent/f.toml: cannot read it"),
        "{why}"
    );
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    let why = load::<Sample>(&pipe).expect_err("a pipe").to_string();
    assert!(why.contains("it is a pipe or a device; write"), "{why}");
    let why = load::<Sample>(folder.path())
        .expect_err("a folder")
        .to_string();
    assert!(
        why.contains("give the path of the configuration file in it"),
        "{why}"
    );
}

#[test]
fn units_are_written_as_they_are_read() {
    for text in ["64MiB", "3B", "5GiB", "1000001B", "7kB"] {
        let size: ByteSize = text.parse().unwrap();
        assert_eq!(size.to_string(), text);
    }
    for text in ["250ms", "1s", "90s", "2h", "15us", "1min"] {
        let period: Period = text.parse().unwrap();
        assert_eq!(period.to_string(), text);
    }
    for bad in ["", "MiB", "1.5MiB", "-1MiB", "1 mib", "99999999TiB", "64"] {
        assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
    }
}

#[test]
fn an_example_file_must_list_every_key() {
    let text = "name = \"x\"\n# note = \"n\"\ntags = []\n[arena]\nbytes = \"64MiB\"\nslots = 4\n[poll]\ninterval = \"1s\"\nlisten = \"off\"\n";
    let unlisted = unlisted_keys::<Sample>(text);
    assert_eq!(unlisted, ["arena.segment_bytes", "items", "on", "share"]);
}

#[test]
fn values_of_a_wrong_type_are_answered_in_words_of_the_file() {
    let message = |text: &str| one(text).3;
    for (text, expected) in [
        (
            "arena.slots = \"8\"",
            "expected a whole number, found the string \"8\"; write it without quotes: 8",
        ),
        (
            "arena.slots = 8.0",
            "expected a whole number, found 8.0; write 8",
        ),
        (
            "arena.slots = -1",
            "expected a whole number of at least 0, found -1",
        ),
        (
            "arena.slots = 5000000000",
            "expected a whole number up to 4294967295, found 5000000000",
        ),
        ("name = 7", "expected a string, found 7; write it in quotes"),
        (
            "tags = \"a\"",
            "expected a list, found the string \"a\"; write it in brackets: [\"a\"]",
        ),
        (
            "arena = 5",
            "expected a table, found 5; its keys are bytes, segment_bytes, slots",
        ),
        (
            "arena.bytes = true",
            "expected a string with a unit, found true; write it as \"64MiB\"",
        ),
        (
            "arena.slots = 1e3",
            "expected a whole number, found 1e3; write 1000",
        ),
        ("arena.slots = 0.5", "expected a whole number, found 0.5"),
        (
            "share = \"70%\"",
            "expected a number, found the string \"70%\"; write it without quotes: 70",
        ),
        (
            "share = \"most\"",
            "expected a number, found the string \"most\"",
        ),
        (
            "on = \"True\"",
            "expected true or false, found the string \"True\"; write it without quotes: true",
        ),
        ("on = 1", "expected true or false, found 1; write true"),
        (
            "on = \"maybe\"",
            "expected true or false, found the string \"maybe\"; write true or false, without quotes",
        ),
        (
            "name = [\"a\"]",
            "expected a string, found a list; write it without brackets",
        ),
        (
            "tags = 3",
            "expected a list, found 3; write it in brackets: [3]",
        ),
        (
            "tags = [\"a\", 3]",
            "expected a string, found 3; write it in quotes",
        ),
        (
            "items = 3",
            "expected a list, found 3; write it in brackets: [3]",
        ),
    ] {
        assert_eq!(message(text), expected, "{text}");
    }
}

#[test]
fn a_file_in_another_language_is_one_problem() {
    for (text, language) in [
        ("# mine\narena:\n  bytes: 5\n", "YAML"),
        ("{\"arena\": {}}", "JSON"),
    ] {
        let (.., message) = one(text);
        let expected = format!("syntax: this looks like {language}, and the configuration is TOML");
        assert!(message.starts_with(&expected), "{message}");
    }
    let (line, _, _, message) = one("name = \"a\"\nname = \"b\"\n");
    assert_eq!(
        (line, message.as_str()),
        (2, "syntax: duplicate key; remove one of the two")
    );
}

#[test]
fn a_command_line_replaces_keys_and_leaves_out_tables_of_other_programs() {
    let text = "[stream]\nslices = 4\n[arena]\nslots = 3\n[poll]\ninterval = \"1s\"\n";
    let overrides = |set: &[&str]| Overrides {
        ignored: vec!["stream".to_owned()],
        set: set.iter().map(|one| (*one).to_owned()).collect(),
    };
    let set = [
        "name=train",
        "arena.slots=7",
        "tags=[\"a\", \"b\"]",
        "poll.listen=127.0.0.1:9",
    ];
    let config: Sample = parse_with("f.toml", text, &overrides(&set)).unwrap();
    assert_eq!((config.name.as_str(), config.arena.slots), ("train", 7));
    assert_eq!(config.tags, ["a", "b"]);
    assert_eq!(config.poll.listen, "127.0.0.1:9".parse().unwrap());
    assert_eq!(config.poll.interval, Period::millis(1000), "of the file");
    let why = parse_with::<Sample>("f.toml", text, &overrides(&["arena.slots=many"]))
        .unwrap_err()
        .to_string();
    assert!(why.contains("--set arena.slots=many"), "{why}");
    let why = parse::<Sample>("f.toml", text).unwrap_err().to_string();
    assert!(why.contains("stream"), "another program's table: {why}");
}
