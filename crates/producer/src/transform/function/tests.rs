//! Tests of the function with real processes of Python.

use std::fs;
use std::time::{Duration, Instant};

use batchweave_core::tgb::Dtype;
use batchweave_daemon::config::{ByteSize, Period};
use tempfile::TempDir;

use super::*;
use crate::config::PackingMode;
use crate::sources::Place;

const MODULE: &str = r#"
import json, os, sys, time

def clean(document):
    text = document["text"]
    if text == "drop":
        return None
    if text == "raise":
        raise ValueError("too   short\nby far")
    if text == "leave":
        print("the last words", file=sys.stderr, flush=True)
        os._exit(3)
    if text == "text":
        return "text"
    if text == "other":
        return {"body": text}
    if text == "bytes":
        return {"text": b"x"}
    if text == "nan":
        return {"text": float("nan")}
    if text == "sleep":
        time.sleep(1000)
    if text == "grow":
        held = b"x" * (300 << 20)
        time.sleep(1000)
        return {"text": str(len(held))}
    if text == "print":
        for _ in range(200_000):
            print("x" * 100)
    if text == "kill":
        # Only the first process; its successors find the mark.
        mark = document["mark"]
        if not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), 9)
    return {"text": text.upper(), "unused": {1, 2}}

def arrays(document):
    import array
    return {"pixels": bytes([1, 2, 3] * document["n"]), "label": document["n"], "name": "caption"}

def split(document):
    text = document["text"]
    if text == "endless":
        return ({"text": "x"} for _ in iter(int, 1))
    if text == "large":
        return ({"text": "x" * 1000} for _ in iter(int, 1))
    if text == "nothing":
        return []
    if text == "none":
        return [{"text": "x"}, None]
    if text == "field":
        return [{"text": "x"}, {"body": "x"}]
    if text == "raise":
        return ({"text": str(1 // n)} for n in (1, 0))
    return [{"text": part} for part in text.split()]

class Shaped:
    def __call__(self, document):
        return {"text": document["text"]}

shaped = Shaped()
not_a_function = 3
"#;

pub(super) struct Scene {
    pub(super) folder: TempDir,
    pub(super) config: ProducerConfig,
}

impl Scene {
    pub(super) fn new(function: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("own_code.py"), MODULE).unwrap();
        let mut config = ProducerConfig::default();
        config.transform.function = format!("own_code:{function}");
        config.transform.path = folder.path().display().to_string();
        config.transform.workers = 2;
        Self { folder, config }
    }

    pub(super) fn start(&self) -> Function {
        Function::start(&self.config).unwrap().unwrap()
    }

    fn refused(&self) -> String {
        Function::start(&self.config).err().unwrap().to_string()
    }
}

pub(super) fn lines(texts: &[&str]) -> Vec<Unit> {
    let unit = |(n, text): (u64, &&str)| {
        let place = Place {
            unit: n,
            ..Place::default()
        };
        Unit {
            place,
            kind: UnitKind::Line,
            raw: Ok(text.as_bytes().to_vec().into()),
            cells: Vec::new(),
        }
    };
    (0..).zip(texts).map(unit).collect()
}

/// Returns the texts of the results, joined by `+` where a document became several, `-` for none and the reason for a bad
/// one.
pub(super) fn texts(applied: Applied) -> Vec<String> {
    let text = |unit: &Unit| match &unit.raw {
        Ok(raw) => {
            let value: Value = serde_json::from_slice(raw).unwrap();
            value["text"].as_str().unwrap().to_owned()
        }
        Err(why) => why.to_string(),
    };
    let all = |made: Option<Prepared>| match made {
        None => "-".to_owned(),
        Some(made) => {
            assert!(made.unit.kind == UnitKind::Json || made.unit.raw.is_err());
            let units = std::iter::once(&made.unit).chain(&made.more);
            units.map(text).collect::<Vec<_>>().join("+")
        }
    };
    applied.units.into_iter().map(all).collect()
}

#[test]
fn documents_keep_their_order_and_bad_ones_say_why() {
    let scene = Scene::new("clean");
    let function = scene.start();
    let all = [
        "a", "drop", " ", "raise", "leave", "text", "other", "bytes", "nan", "\u{e9}",
    ];
    let applied = function.apply("text", lines(&all));
    assert_eq!((applied.dropped, applied.deaths), (1, 1));
    let made = texts(applied);
    assert_eq!(
        (&*made[0], &*made[1], &*made[2], &*made[9]),
        ("A", "-", "-", "\u{c9}")
    );
    let says = |n: usize, what: &str| {
        let why = &made[n];
        assert!(
            why.starts_with("transform.function ") && why.contains(what),
            "{why}"
        );
    };
    says(3, "raised ValueError: too short by far (");
    says(3, "own_code.py:9)");
    says(
        4,
        "ended its process with exit code 3; its last words: the last words",
    );
    says(5, "returned a str, not a dict, a list of dicts or None");
    says(6, "returned no field \"text\"; its fields are \"body\"");
    says(7, "returned bytes in a field");
    says(8, "returned what can't be passed on: ValueError");
}

#[test]
fn a_document_may_become_several() {
    let mut scene = Scene::new("split");
    scene.config.source.max_document_bytes = ByteSize(1 << 20);
    let all = [
        "a b  c", "d", "nothing", "endless", "large", "none", "field", "raise",
    ];
    let applied = scene.start().apply("text", lines(&all));
    assert_eq!((applied.dropped, applied.deaths), (1, 0));
    let made = texts(applied);
    assert_eq!(made[..3], ["a+b+c", "d", "-"]);
    let says = [
        "returned more than 4096 documents of one",
        "returned more than 1048576 bytes, the most of source.max_document_bytes",
        "returned a NoneType as document 2 of its list, not a dict",
        "returned no field \"text\"; its fields are \"body\"",
        "raised ZeroDivisionError: ",
    ];
    for (why, what) in made[3..].iter().zip(says) {
        assert!(why.contains(what), "{why}");
    }
}

#[test]
fn a_process_that_hangs_or_grows_costs_one_document() {
    let mut scene = Scene::new("clean");
    scene.config.transform.timeout = Period(Duration::from_secs(5));
    let made = texts(scene.start().apply("text", lines(&["a", "sleep", "b"])));
    assert_eq!((&*made[0], &*made[2]), ("A", "B"));
    assert!(
        made[1].contains("takes longer than 5 s, the most of transform.timeout"),
        "{}",
        made[1]
    );
    scene.config.transform.timeout = Period(Duration::from_mins(5));
    scene.config.transform.memory = ByteSize::mib(200);
    let made = texts(scene.start().apply("text", lines(&["a", "grow", "b"])));
    assert_eq!((&*made[0], &*made[2]), ("A", "B"));
    assert!(
        made[1].contains("more memory than transform.memory allows"),
        "{}",
        made[1]
    );
}

#[test]
fn a_process_that_is_killed_from_outside_costs_nothing() {
    let scene = Scene::new("clean");
    let mark = scene.folder.path().join("mark");
    let line = serde_json::json!({"text": "kill", "mark": mark}).to_string();
    let mut units = lines(&["a", &line, "b"]);
    units[1].kind = UnitKind::Json;
    let applied = scene.start().apply("text", units);
    assert_eq!((applied.dropped, applied.deaths), (0, 1));
    assert_eq!(texts(applied), ["A", "KILL", "B"]);
}

#[test]
fn what_it_prints_does_not_disturb_the_answers() {
    let scene = Scene::new("clean");
    let made = texts(scene.start().apply("text", lines(&["print", "b"])));
    assert_eq!(made, ["PRINT", "B"]);
}

#[test]
fn threads_share_the_processes() {
    let scene = Scene::new("shaped");
    let function = scene.start();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let function = &function;
            scope.spawn(move || {
                for n in 0..20 {
                    let one = format!("{thread}.{n}");
                    let other = format!("{n}");
                    let made = texts(function.apply("text", lines(&[&one, &other])));
                    assert_eq!(made, [one, other]);
                }
            });
        }
    });
}

pub(super) fn spec(name: &str, dtype: Dtype, shape: &[u64]) -> ArraySpec {
    ArraySpec {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        base64: false,
        image: None,
        path: false,
        shortest: None,
        from: String::new(),
    }
}

#[test]
fn arrays_pass_as_bytes_and_numbers_by_their_types() {
    let mut scene = Scene::new("arrays");
    scene.config.packing.mode = PackingMode::Opaque;
    scene.config.packing.arrays = vec![
        spec("pixels", Dtype::U8, &[3]),
        spec("label", Dtype::U8, &[]),
        spec("name", Dtype::U8, &[]),
    ];
    let function = scene.start();
    let mut units = lines(&["{\"n\": 2}", "{\"n\": 256}"]);
    for unit in &mut units {
        unit.kind = UnitKind::Json;
    }
    let mut made = function.apply("", units).units.into_iter();
    let first = made.next().unwrap().unwrap();
    assert_eq!(first.unit.kind, UnitKind::Row);
    let expected = [&[1, 2, 3, 1, 2, 3][..], &[2], b"caption"];
    let expected_cells = expected.map(|cell| Cell::Bytes(cell.to_vec().into()));
    assert_eq!(first.unit.cells, expected_cells);
    let second = made.next().unwrap().unwrap();
    let why = second.unit.raw.unwrap_err().to_string();
    assert!(why.contains("array \"label\" holds 256"), "{why}");
}

#[test]
fn arrays_come_beside_the_text() {
    let mut scene = Scene::new("both");
    let module = "def both(d):\n    return {'text': d['text'] * 2, 'pixels': bytes(d['n'])}\n";
    fs::write(scene.folder.path().join("own_code.py"), module).unwrap();
    scene.config.packing.mode = PackingMode::BestFit;
    scene.config.packing.arrays = vec![spec("pixels", Dtype::U8, &[])];
    let function = scene.start();
    let mut units = lines(&["{\"text\": \"a\", \"n\": 2}"]);
    units[0].kind = UnitKind::Json;
    let made = function.apply("text", units).units.remove(0).unwrap();
    assert_eq!(made.unit.kind, UnitKind::Json);
    assert_eq!(made.unit.raw.unwrap(), "{\"text\": \"aa\"}");
    assert_eq!(made.unit.cells, [Cell::Bytes(vec![0, 0].into())]);
}

#[test]
fn samples_of_tars_are_decoded_by_the_names_of_their_fields() {
    let mut scene = Scene::new("clean");
    scene.config.transform.fields = vec!["TXT;text".into(), "json".into()];
    let module =
        "def caption(d):\n    return {'text': repr([d['__key__'], d['TXT'], d['json']])}\n";
    fs::write(scene.folder.path().join("own_code.py"), module).unwrap();
    scene.config.transform.function = "own_code:caption".into();
    let cells = [&b"a cat"[..], b"{\"n\": [1]}"];
    let sample = |cells: Vec<Cell>| Unit {
        place: Place::default(),
        kind: UnitKind::Sample,
        raw: Ok("a/7".into()),
        cells,
    };
    let good = sample(cells.map(|cell| Cell::Bytes(cell.to_vec().into())).into());
    let bad = sample(
        [&b"a cat"[..], b"{"]
            .map(|cell| Cell::Bytes(cell.to_vec().into()))
            .into(),
    );
    let made = texts(scene.start().apply("text", vec![good, bad]));
    assert_eq!(made[0], "['a/7', 'a cat', {'n': [1]}]");
    assert!(
        made[1].contains("a/7") && made[1].contains("can't be read: JSONDecodeError"),
        "{}",
        made[1]
    );
}

#[test]
fn a_function_that_cannot_be_loaded_is_refused_at_the_start() {
    let mut scene = Scene::new("not_a_function");
    let says = |scene: &Scene, what: &str| {
        let why = scene.refused();
        assert!(why.contains(what), "{why}");
    };
    says(&scene, "TypeError: not_a_function is a int, not a function");
    scene.config.transform.function = "own_code:absent".into();
    says(
        &scene,
        "AttributeError: module 'own_code' has no attribute 'absent'",
    );
    scene.config.transform.function = "no_such_module:clean".into();
    says(
        &scene,
        "ModuleNotFoundError: No module named 'no_such_module'",
    );
    scene.config.transform.python = "no-such-python".into();
    says(&scene, "transform.python: can't start \"no-such-python\"");
    scene.config.transform.python = "false".into();
    says(
        &scene,
        "ended its process with exit code 1, while it was loaded",
    );
}

#[test]
fn processes_end_with_the_function() {
    let scene = Scene::new("clean");
    let module = "import os\ndef pid(d):\n    return {'text': str(os.getpid())}\n";
    fs::write(scene.folder.path().join("own_code.py"), module).unwrap();
    let mut config = scene.config.clone();
    config.transform.function = "own_code:pid".into();
    let function = Function::start(&config).unwrap().unwrap();
    let pid = texts(function.apply("text", lines(&["a"]))).remove(0);
    let process = std::path::PathBuf::from(format!("/proc/{pid}"));
    assert!(process.exists());
    drop(function);
    let began = Instant::now();
    while process.exists() && began.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!process.exists());
}
