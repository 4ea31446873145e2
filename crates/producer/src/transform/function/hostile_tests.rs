//! Functions that fork, write where they should not, and leave processes behind.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use batchweave_core::tgb::Dtype;
use batchweave_daemon::config::{ByteSize, Period};

use super::tests::{Scene, lines, spec, texts};
use crate::config::PackingMode;
use crate::sources::{Cell, UnitKind};

const MODULE: &str = r#"
import os, time

FOLDER = os.path.dirname(__file__)

def fork_returns(document):
    if document["text"] == "bad":
        os.fork()
    return {"text": document["text"].upper()}

def fork_raises(document):
    if document["text"] == "bad" and os.fork() == 0:
        raise ValueError("the child")
    return {"text": document["text"].upper()}

def fork_yields(document):
    yield {"text": document["text"].upper()}
    if document["text"] == "bad":
        os.fork()
    yield {"text": "x"}

def forged(document):
    if document["text"] == "bad":
        frames = b"\x09\0\0\0\0\0\0\0\"dropped\"" + b"\0" * 8
        for number in range(3, 20):
            try:
                os.write(number, frames)
            except OSError:
                pass
    return {"text": document["text"].upper()}

def slow_once(document):
    mark = os.path.join(FOLDER, "mark")
    if document["text"] == "bad" and not os.path.exists(mark):
        open(mark, "w").close()
        time.sleep(1000)
    return {"text": document["text"].upper()}

def child_grows(document):
    if document["text"] == "bad":
        if os.fork() == 0:
            held = b"x" * (300 << 20)
            time.sleep(1000)
        os.wait()
    return {"text": document["text"].upper()}

def strays(document):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open(os.path.join(FOLDER, "stray.part"), "w") as out:
                out.write(str(os.getpid()))
            os.rename(os.path.join(FOLDER, "stray.part"), os.path.join(FOLDER, "stray"))
            time.sleep(1000)
        os._exit(0)
    os.wait()
    return {"text": "done"}

def reuses(document):
    pixels = bytearray(3)
    for number in range(3):
        pixels[:] = bytes([number] * 3)
        yield {"pixels": memoryview(pixels) if number == 1 else pixels}
"#;

fn scene(function: &str) -> Scene {
    let scene = Scene::new(function);
    std::fs::write(scene.folder.path().join("own_code.py"), MODULE).unwrap();
    scene
}

#[test]
fn a_forked_process_that_returns_changes_no_answer() {
    for function in ["fork_returns", "fork_raises"] {
        let made = scene(function)
            .start()
            .apply("text", lines(&["a", "bad", "b"]));
        assert_eq!(made.deaths, 0, "{function}");
        assert_eq!(texts(made), ["A", "BAD", "B"], "{function}");
    }
    let made = scene("fork_yields")
        .start()
        .apply("text", lines(&["a", "bad", "b"]));
    assert_eq!(texts(made), ["A+x", "BAD+x", "B+x"]);
}

#[test]
fn bytes_that_are_no_answer_to_this_document_end_the_process_by_name() {
    let made = scene("forged")
        .start()
        .apply("text", lines(&["a", "bad", "b"]));
    assert_eq!(made.deaths, 2);
    let made = texts(made);
    assert_eq!((&*made[0], &*made[2]), ("A", "B"));
    let says = "wrote to the pipe of its answers";
    assert!(made[1].contains(says), "{}", made[1]);
}

#[test]
fn a_document_that_was_too_slow_once_is_tried_in_another_process() {
    let mut scene = scene("slow_once");
    scene.config.transform.timeout = Period(Duration::from_secs(5));
    let made = scene.start().apply("text", lines(&["a", "bad", "b"]));
    assert_eq!(made.deaths, 1);
    assert_eq!(texts(made), ["A", "BAD", "B"]);
}

#[test]
fn the_memory_of_children_counts() {
    let mut scene = scene("child_grows");
    scene.config.transform.memory = ByteSize::mib(200);
    let made = texts(scene.start().apply("text", lines(&["a", "bad", "b"])));
    assert_eq!((&*made[0], &*made[2]), ("A", "B"));
    let says = "more memory than transform.memory allows";
    assert!(made[1].contains(says), "{}", made[1]);
}

#[test]
fn processes_that_left_the_group_end_with_the_function() {
    let scene = scene("strays");
    let function = scene.start();
    assert_eq!(texts(function.apply("text", lines(&["a"]))), ["done"]);
    let stray = stray(scene.folder.path());
    assert!(lives(&stray));
    drop(function);
    let began = Instant::now();
    while lives(&stray) && began.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!lives(&stray));
}

/// Returns the folder of the process whose number the function wrote, which may still be on its way.
fn stray(folder: &Path) -> PathBuf {
    let began = Instant::now();
    loop {
        if let Ok(pid) = std::fs::read_to_string(folder.join("stray")) {
            return PathBuf::from(format!("/proc/{pid}"));
        }
        assert!(began.elapsed() < Duration::from_mins(1));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns false also of one that nobody has waited for.
fn lives(process: &Path) -> bool {
    !std::fs::read(process.join("cmdline"))
        .unwrap_or_default()
        .is_empty()
}

#[test]
fn a_generator_may_use_its_memory_again() {
    let mut scene = scene("reuses");
    scene.config.packing.mode = PackingMode::Opaque;
    scene.config.packing.arrays = vec![spec("pixels", Dtype::U8, &[])];
    let mut units = lines(&["{}"]);
    units[0].kind = UnitKind::Json;
    let made = scene.start().apply("", units).units.remove(0).unwrap();
    let units = std::iter::once(made.unit).chain(made.more);
    let found: Vec<Vec<Cell>> = units.map(|unit| unit.cells).collect();
    let pixels = |number: u8| vec![Cell::Bytes(vec![number; 3].into())];
    assert_eq!(found, [pixels(0), pixels(1), pixels(2)]);
}
