//! What the four kinds of programs make of a damaged copy of the stream.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::rank::{Fate, read};
use super::whole::{MINUTE, Place, STEPS, Whole};

/// Exit codes of a program that says what is wrong with the store or with what is in it.
const NAMED: [i32; 6] = [1, 65, 66, 69, 73, 76];

/// How one program took it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Took {
    /// It did what it does on the whole stream.
    Right,
    /// It stopped, or did less, with an error that has a name.
    Named(String),
    /// What must never be.
    Wrong(String),
}

/// What may be deleted, what becomes of the watermark by a reclaimer of the whole stream, and what is proved
/// of the job's run.
#[derive(Debug, Default)]
pub(super) struct Undisturbed {
    pub(super) deleted: BTreeSet<String>,
    pub(super) watermark: u64,
    pub(super) proof: Value,
}

/// Copies a folder; the copy's files are hard links.
pub(super) fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-al").args([from, to]).status();
    assert!(done.unwrap().success());
}

/// Whether a program that ended with this code has named what is wrong.
fn named(program: &str, code: Option<i32>, said: &str) -> Took {
    let words = said.lines().rev().find(|line| {
        ["error", "ERROR", "batchweave-"]
            .iter()
            .any(|word| line.contains(word))
    });
    match (code, words) {
        _ if said.contains("panicked") => Took::Wrong(format!("{program}: {said}")),
        (Some(code), Some(words)) if NAMED.contains(&code) => Took::Named(short(code, words)),
        _ => Took::Wrong(format!("{program}: exit {code:?}: {said}")),
    }
}

/// Words of errors that name damage, and what each says.
const WORDS: [(&str, &str); 8] = [
    (
        "does not end in the digest",
        "its digest is not that of its bytes",
    ),
    (
        "not those that its name has the hash of",
        "its name has another hash",
    ),
    ("CRC32C", "its checksum is not that of its bytes"),
    ("an index entry", "an index entry that can't be"),
    ("frame header", "a frame header that can't be"),
    ("bytes in the store", "its length is not that in the log"),
    ("not readable: ", "not readable as JSON"),
    ("digest", "a digest that is not that of its bytes"),
];

/// Shortens an error to its meaning, without places and numbers, so that equal ones can be counted.
fn short(code: i32, words: &str) -> String {
    if let Some((_, meaning)) = WORDS.iter().find(|(known, _)| words.contains(known)) {
        return format!("{code}: {meaning}");
    }
    let plain = words
        .chars()
        .map(|c| if c.is_ascii_digit() { '#' } else { c });
    format!("{code}: {}", plain.take(300).collect::<String>())
}

fn answer(mut command: Command) -> (Option<i32>, Value, String) {
    let run = command.output().unwrap();
    let value = serde_json::from_slice(&run.stdout).unwrap_or_default();
    let mut said = String::from_utf8_lossy(&run.stderr).into_owned();
    if said.trim().is_empty() {
        said = format!("error: {}", String::from_utf8_lossy(&run.stdout));
    }
    (run.status.code(), value, said)
}

pub(super) fn verify(place: &Place, whole: &Whole) -> Took {
    let (code, report, said) = answer(place.cli(&["verify", "--data"]));
    if code != Some(0) {
        return named("verify", code, &said);
    }
    let stands = (report["steps"].as_u64(), report["watermark"].as_u64());
    if stands == (Some(whole.committed), Some(Whole::watermark())) {
        Took::Right
    } else {
        Took::Wrong(format!("sound, with {stands:?}: {report}"))
    }
}

/// What `verify --job` says of the run: the verdict, and over which steps.
pub(super) fn proof(place: &Place) -> (Option<i32>, Value, String) {
    let (code, report, said) = answer(place.cli(&["verify", "--job", "llm"]));
    let parts = ["verdict", "from", "to", "steps", "ledgers", "mark"];
    let parts = parts.map(|part| (part.to_owned(), report[part].clone()));
    (code, Value::Object(parts.into_iter().collect()), said)
}

/// Runs `verify --job`, which must never prove more steps, or other ones, than on the whole stream.
pub(super) fn prove(place: &Place, whole: &Undisturbed) -> Took {
    let (code, proof, said) = proof(place);
    match code {
        Some(0) if proof == whole.proof => Took::Right,
        Some(0) => Took::Wrong(format!("{proof} in place of {}", whole.proof)),
        _ => named("verify", code, &said),
    }
}

/// Runs a reclaimer, which must delete no more than on the whole stream. `keys` lists what is there.
pub(super) fn reclaim(place: &Place, keys: impl Fn() -> Vec<String>, whole: &Undisturbed) -> Took {
    let before = keys();
    let (code, report, said) = answer(place.cli(&["reclaim", "--apply"]));
    let after: BTreeSet<String> = keys().into_iter().collect();
    let lost = before
        .into_iter()
        .filter(|key| !after.contains(key) && !whole.deleted.contains(key));
    let lost: Vec<String> = lost.collect();
    if !lost.is_empty() {
        return Took::Wrong(format!("deleted {lost:?}: {report}"));
    }
    match report["watermark_after"].as_u64() {
        Some(at) if at > whole.watermark => Took::Wrong(format!("watermark {at}: {report}")),
        _ if code == Some(0) => Took::Right,
        _ => named("reclaim", code, &said),
    }
}

/// Runs both producers from where they were stopped to the end of their input.
pub(super) fn produce(place: &Place) -> Took {
    let mut running = ["p0", "p1"].map(|name| place.start(name));
    let (began, mut asked) = (Instant::now(), false);
    loop {
        let codes = running
            .each_mut()
            .map(|process| process.0.try_wait().unwrap());
        // One that waits for the turn of another that has stopped waits for a person.
        if !asked && codes.iter().flatten().any(|status| !status.success()) {
            asked = true;
            let living = running.iter().zip(&codes);
            for (process, _) in living.filter(|(_, code)| code.is_none()) {
                process.signal("TERM");
            }
        }
        if codes.iter().all(Option::is_some) {
            let told = ["p0", "p1"].into_iter().zip(codes.into_iter().flatten());
            let told = told.map(|(name, status)| match status.code() {
                Some(0) => Took::Right,
                // Asked to stop before it could hear that.
                None if asked => Took::Right,
                code => named(name, code, &place.said(&format!("{name}.log"))),
            });
            // What is wrong is more than what has a name, and that is more than what is right.
            return told.max().unwrap_or(Took::Right);
        }
        if began.elapsed() > 2 * MINUTE {
            return Took::Wrong(format!("producers hang: {}", place.said("p0.log")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a consumer daemon and a rank that reads every step from the oldest restart point on.
pub(super) fn consume(place: &Place, whole: &Whole, complete: bool) -> Took {
    let mut daemon = place.start("c");
    let began = Instant::now();
    while !place.said("c.log").contains("serving stream") {
        if let Ok(Some(status)) = daemon.0.try_wait() {
            return named("consumer", status.code(), &place.said("c.log"));
        }
        if began.elapsed() > MINUTE {
            return Took::Wrong(format!("a daemon hangs: {}", place.said("c.log")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let until = if complete { STEPS } else { whole.committed };
    let fate = read(
        &place.path("s"),
        &whole.state,
        &whole.truth,
        until,
        complete,
    );
    daemon.signal("TERM");
    let code = daemon.wait(MINUTE);
    let said = place.said("c.log");
    let _ = fs::remove_file(place.path("s"));
    match fate {
        Fate::Wrong(what) => Took::Wrong(format!("{what}: {said}")),
        Fate::Stopped(why) if why.name() == "timeout" => {
            Took::Wrong(format!("a rank waits in vain: {why}: {said}"))
        }
        Fate::Stopped(why) => Took::Named(format!("rank: {}", short(0, &why.to_string()))),
        Fate::Right if code == Some(0) && !said.contains("panicked") => Took::Right,
        Fate::Right => named("consumer", code, &said),
    }
}
