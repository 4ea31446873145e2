//! `batchweave quickstart` on folders as people have them: the files that it writes are ones that `batchweave run` takes,
//! and the stream that it begins is the one of that run.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{Ran, command};

const BAD_INPUT: i32 = 65;
const LINES_MAX: usize = 12;

/// A folder in which a user works.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap()
    }

    fn run(&self, args: &[&str]) -> Ran {
        let socket = self.path().join("c.sock");
        let mut command = command(args);
        command.current_dir(self.path());
        Ran::of(command.env("BATCHWEAVE_SOCKET", socket))
    }

    /// Asserts that the run file passes the check of both daemons.
    #[track_caller]
    fn is_sound(&self) -> Ran {
        let ran = self.run(&["run", "run.toml", "--check"]);
        ran.prints(&["run.toml: ok"]);
        ran
    }

    fn status(&self) -> Value {
        let ran = self.run(&["status", "--store", "./batchweave-stream", "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str(&ran.out).unwrap()
    }
}

/// JSON lines with a text of some length in `field`.
fn lines(field: &str, number: usize) -> String {
    let mut lines = String::new();
    for n in 0..number {
        let text =
            format!("Document {n} tells of the sea, of ships and of their crews. ").repeat(9);
        let _ = writeln!(lines, "{}", json!({"id": n, field: text}));
    }
    lines
}

#[track_caller]
fn is_short(ran: &Ran) {
    assert!(ran.out.lines().count() <= LINES_MAX, "{}", ran.out);
    // The stream is read while it is made: a record may appear between a read and its repetition.
    let mut others = ran
        .err
        .lines()
        .filter(|line| !line.contains("a read found no log/"));
    assert_eq!(others.next(), None, "{ran:?}");
}

#[test]
fn json_lines_become_a_stream_whose_first_row_is_shown() {
    let desk = Desk::new();
    desk.write("data/a.jsonl", lines("body", 40));
    desk.write("data/deep/b.jsonl", lines("body", 20));
    desk.write("data/notes.md", "# Notes");
    let ran = desk.run(&["quickstart", "data"]);
    ran.prints(&[
        "2 files, JSON lines",
        "1 other file, as data/notes.md (text",
        "\"body\" (source.field)",
        "run.toml, train.py",
        "of the sea",
        "batchweave run run.toml",
    ]);
    is_short(&ran);
    desk.is_sound();
    let status = desk.status();
    assert!(status["head"]["steps"].as_u64() >= Some(4), "{status}");
    assert_eq!(status["producers"][0]["name"], "tokens-0");
}

#[test]
fn data_beside_the_stream_are_read_without_what_a_run_writes() {
    let desk = Desk::new();
    desk.write("a.txt", "One text of some words. ".repeat(200));
    desk.write("more/b.md", "Another text of some words. ".repeat(200));
    let ran = desk.run(&["quickstart"]);
    ran.prints(&["2 files, text, one document each"]);
    is_short(&ran);
    assert!(
        desk.read("run.toml")
            .contains("paths = [\"*.txt\", \"more/**/*.md\"]")
    );
    desk.write("train.checkpoint", "later");
    desk.is_sound();
}

#[test]
fn a_file_that_exists_is_not_replaced_without_force() {
    let desk = Desk::new();
    desk.write("data/a.jsonl", lines("text", 5));
    desk.write("train.py", "mine");
    let args = ["quickstart", "data", "--no-run"];
    desk.run(&args)
        .fails(1, &["train.py exists already", "--force", "--into"]);
    assert_eq!(desk.read("train.py"), "mine");
    assert!(!desk.path().join("run.toml").exists());
    let ran = desk.run(&["quickstart", "data", "--no-run", "--force"]);
    is_short(&ran);
    assert!(desk.read("train.py").contains("batchweave.connect"));
    assert!(
        !desk.path().join("batchweave-stream").exists(),
        "nothing ran"
    );
    desk.is_sound();
}

#[test]
fn a_stream_that_exists_is_not_touched() {
    let desk = Desk::new();
    desk.write("data/a.jsonl", lines("text", 20));
    assert_eq!(desk.run(&["quickstart", "data"]).code, 0);
    let before = desk.status();
    let again = desk.run(&["quickstart", "data", "--force"]);
    again.fails(
        1,
        &["holds a stream already", "--store", "batchweave delete"],
    );
    assert_eq!(desk.status()["head"], before["head"]);
}

#[test]
fn files_of_several_places_are_written_into_a_folder() {
    let desk = Desk::new();
    desk.write("data/a.jsonl", lines("text", 20));
    fs::create_dir(desk.path().join("mine")).unwrap();
    let ran = desk.run(&["quickstart", "data/a.jsonl", "--into", "mine", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["wrote"], json!(["mine/run.toml", "mine/train.py"]));
    assert_eq!(report["store"], "./mine/batchweave-stream");
    assert!(report["steps"].as_u64() >= Some(1), "{report}");
    assert_eq!(report["next"][0], "batchweave run mine/run.toml");
    let check = desk.run(&["run", "mine/run.toml", "--check"]);
    check.prints(&["mine/run.toml: ok"]);
}

#[test]
fn rows_of_parquet_are_read_by_column() {
    let desk = Desk::new();
    let schema = "message m { required binary title (UTF8); required binary words (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    fs::create_dir(desk.path().join("data")).unwrap();
    let file = fs::File::create(desk.path().join("data/a.parquet")).unwrap();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(file, schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for text in [
        "A title",
        "Words of a document that go on for a while, with an end.",
    ] {
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> = (0..50).map(|_| ByteArray::from(text)).collect();
        let typed = column.typed::<ByteArrayType>();
        typed.write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    let ran = desk.run(&["quickstart", "data", "--no-run"]);
    ran.prints(&["1 file, Parquet", "\"words\" (source.column)"]);
    is_short(&ran);
    let check = desk.is_sound();
    assert!(check.out.contains("Words of a document"), "{check:?}");
}

#[test]
fn samples_of_a_tar_are_read_by_their_text() {
    let desk = Desk::new();
    let mut tar = Vec::new();
    for n in 0..9 {
        tar_member(
            &mut tar,
            &format!("{n}.txt"),
            &format!("The caption of picture {n}."),
        );
        tar_member(&mut tar, &format!("{n}.cls"), "7");
    }
    tar.extend([0; 1024]);
    desk.write("data/train-0.tar", tar);
    let ran = desk.run(&["quickstart", "data", "--no-run"]);
    ran.prints(&["1 file, tar", "\"txt\" (source.field)"]);
    let check = desk.is_sound();
    assert!(check.out.contains("The caption of picture 0."), "{check:?}");
}

/// Appends a file to a tar.
fn tar_member(tar: &mut Vec<u8>, name: &str, content: &str) {
    let mut header = [0_u8; 512];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644\0");
    put(124, &format!("{:011o}\0", content.len()));
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    tar.extend(header);
    tar.extend(content.as_bytes());
    tar.resize(tar.len().next_multiple_of(512), 0);
}

#[test]
fn conversations_without_a_model_get_a_plain_template_and_the_output_says_so() {
    let desk = Desk::new();
    let mut lines = String::new();
    for n in 0..30 {
        let said = json!([
            {"from": "human", "value": format!("What is {n} plus one?")},
            {"from": "gpt", "value": format!("It is {}.", n + 1)},
        ]);
        let _ = writeln!(lines, "{}", json!({"conversations": said}));
    }
    desk.write("data/chat.jsonl", lines);
    let ran = desk.run(&["quickstart", "data"]);
    ran.prints(&[
        "\"conversations\" (chat.messages)",
        "chat.jinja, a plain one: no model's is near",
        "plus one?",
    ]);
    is_short(&ran);
    assert!(desk.read("chat.jinja").contains("generation"));
    desk.is_sound();
}

#[test]
fn a_model_beside_the_data_gives_its_template_and_is_left_out() {
    let desk = Desk::new();
    let said = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]);
    desk.write(
        "data/chat.json",
        format!("{}\n", json!({"messages": said})).repeat(9),
    );
    desk.write("data/tokenizer.json", "{}");
    desk.write(
        "data/tokenizer_config.json",
        "{\"chat_template\": \"{{ messages }}\"}",
    );
    let ran = desk.run(&["quickstart", "data", "--no-run"]);
    ran.prints(&[
        "1 file, JSON lines",
        "data/tokenizer.json",
        "the model's (chat.template)",
    ]);
    let text = desk.read("run.toml");
    assert!(text.contains("paths = [\"data/chat.json\"]"), "{text}");
    assert!(!desk.path().join("chat.jinja").exists());
}

#[test]
fn data_that_do_not_fit_are_refused_and_nothing_is_written() {
    let empty = Desk::new();
    fs::create_dir(empty.path().join("data")).unwrap();
    empty
        .run(&["quickstart", "data"])
        .fails(BAD_INPUT, &["no data files", "JSONL"]);
    empty
        .run(&["quickstart", "absent"])
        .fails(BAD_INPUT, &["absent does not exist"]);
    let numbers = Desk::new();
    numbers.write("data/a.jsonl", "{\"label\": \"cat\", \"n\": 1}\n");
    let parts = ["data/a.jsonl", "label (text), n (number)", "--field"];
    numbers
        .run(&["quickstart", "data"])
        .fails(BAD_INPUT, &parts);
    let named = numbers.run(&["quickstart", "data", "--field", "body"]);
    named.fails(BAD_INPUT, &["--field body", "label (text)"]);
    let unreadable = Desk::new();
    unreadable.write("data/a.jsonl", lines("text", 3));
    let link = unreadable.path().join("data/b.jsonl");
    std::os::unix::fs::symlink("nowhere", link).unwrap();
    unreadable
        .run(&["quickstart", "data"])
        .fails(BAD_INPUT, &["data/b.jsonl"]);
    for desk in [empty, numbers, unreadable] {
        let names = fs::read_dir(desk.path()).unwrap().count();
        assert_eq!(names, 1, "only the data are there");
    }
}

#[test]
fn a_bad_document_stops_the_first_steps_with_its_place_and_the_next_command() {
    let desk = Desk::new();
    desk.write("data/a.jsonl", format!("{}{{\n", lines("text", 1)));
    let ran = desk.run(&["quickstart", "data"]);
    assert_eq!(ran.code, BAD_INPUT, "{ran:?}");
    for part in [
        "data/a.jsonl:2",
        "run.toml is written",
        "batchweave run run.toml --check",
    ] {
        assert!(ran.err.contains(part), "no {part} in {ran:?}");
    }
}

#[test]
fn token_ids_without_a_tokenizer_are_shown_as_numbers() {
    let desk = Desk::new();
    let lines: Vec<String> = (0..40)
        .map(|n| json!({"input_ids": [5, 6, n, 50256], "attention_mask": [1, 1, 1, 1]}).to_string())
        .collect();
    desk.write("data/ids.jsonl", lines.join("\n"));
    let ran = desk.run(&["quickstart", "data"]);
    ran.prints(&[
        "\"input_ids\" (source.field)",
        "batchweave show 0 --slice 0",
    ]);
    is_short(&ran);
    assert!(!ran.out.contains("row 0"), "{ran:?}");
    let shown = desk.run(&[
        "show",
        "0",
        "--slice",
        "0",
        "--store",
        "./batchweave-stream",
    ]);
    shown.prints(&["50256"]);
}
