//! The reactions of the four kinds of programs to a damaged copy of the stream.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::rank::{Outcome, read};
use super::whole::{MINUTE, Place, STEPS, Whole};

/// Exit codes of a program that reports an error of the store or of its content.
const NAMED: [i32; 6] = [1, 65, 66, 69, 73, 76];

/// The reaction of one program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reaction {
    /// It did the same as on the whole stream.
    Right,
    /// It stopped, or did less, with a named error.
    Named(String),
    /// It broke a rule.
    Wrong(String),
}

/// The results on the whole stream: the objects that a reclaimer may delete, the watermark that it
/// publishes, and the proof of the job's run.
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

/// Returns true if a program with this exit code has named the error.
fn named(program: &str, code: Option<i32>, output: &str) -> Reaction {
    let words = output.lines().rev().find(|line| {
        ["error", "ERROR", "batchweave-"]
            .iter()
            .any(|word| line.contains(word))
    });
    match (code, words) {
        _ if output.contains("panicked") => Reaction::Wrong(format!("{program}: {output}")),
        (Some(code), Some(words)) if NAMED.contains(&code) => Reaction::Named(short(code, words)),
        _ => Reaction::Wrong(format!("{program}: exit {code:?}: {output}")),
    }
}

/// Words of errors that name damage, and the meaning of each.
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
    let mut output = String::from_utf8_lossy(&run.stderr).into_owned();
    if output.trim().is_empty() {
        output = format!("error: {}", String::from_utf8_lossy(&run.stdout));
    }
    (run.status.code(), value, output)
}

pub(super) fn verify(place: &Place, whole: &Whole) -> Reaction {
    let (code, report, output) = answer(place.cli(&["verify", "--data"]));
    if code != Some(0) {
        return named("verify", code, &output);
    }
    let stands = (report["steps"].as_u64(), report["watermark"].as_u64());
    if stands == (Some(whole.committed), Some(Whole::watermark())) {
        Reaction::Right
    } else {
        Reaction::Wrong(format!("sound, with {stands:?}: {report}"))
    }
}

/// The result of `verify --job` about a run: the verdict, and the steps that it covers.
pub(super) fn proof(place: &Place) -> (Option<i32>, Value, String) {
    let (code, report, output) = answer(place.cli(&["verify", "--job", "llm"]));
    let parts = ["verdict", "from", "to", "steps", "ledgers", "mark"]
        .map(|part| (part.to_owned(), report[part].clone()));
    (code, Value::Object(parts.into_iter().collect()), output)
}

/// Runs `verify --job`, which must not prove more steps, or other ones, than on the whole stream.
pub(super) fn prove(place: &Place, whole: &Undisturbed) -> Reaction {
    let (code, proof, output) = proof(place);
    match code {
        Some(0) if proof == whole.proof => Reaction::Right,
        Some(0) => Reaction::Wrong(format!("{proof} in place of {}", whole.proof)),
        _ => named("verify", code, &output),
    }
}

/// Runs a reclaimer, which must delete no more than on the whole stream. `keys` lists the objects.
pub(super) fn reclaim(
    place: &Place,
    keys: impl Fn() -> Vec<String>,
    whole: &Undisturbed,
) -> Reaction {
    let before = keys();
    let (code, report, output) = answer(place.cli(&["reclaim", "--apply"]));
    let after: BTreeSet<String> = keys().into_iter().collect();
    let lost: Vec<String> = before
        .into_iter()
        .filter(|key| !after.contains(key) && !whole.deleted.contains(key))
        .collect();
    if !lost.is_empty() {
        return Reaction::Wrong(format!("deleted {lost:?}: {report}"));
    }
    match report["watermark_after"].as_u64() {
        Some(at) if at > whole.watermark => Reaction::Wrong(format!("watermark {at}: {report}")),
        _ if code == Some(0) => Reaction::Right,
        _ => named("reclaim", code, &output),
    }
}

/// Runs both producers from their last commit to the end of their input.
pub(super) fn produce(place: &Place) -> Reaction {
    let mut running = ["p0", "p1"].map(|name| place.start(name));
    let (began, mut asked) = (Instant::now(), false);
    loop {
        let codes = running
            .each_mut()
            .map(|process| process.0.try_wait().unwrap());
        // A producer that waits for the turn of one that has stopped waits for an operator.
        if !asked && codes.iter().flatten().any(|status| !status.success()) {
            asked = true;
            let living = running.iter().zip(&codes);
            for (process, _) in living.filter(|(_, code)| code.is_none()) {
                process.signal("TERM");
            }
        }
        if codes.iter().all(Option::is_some) {
            let results = ["p0", "p1"]
                .into_iter()
                .zip(codes.into_iter().flatten())
                .map(|(name, status)| match status.code() {
                    Some(0) => Reaction::Right,
                    // The signal arrived before it could handle it.
                    None if asked => Reaction::Right,
                    code => named(name, code, &place.log_text(&format!("{name}.log"))),
                });
            // A broken rule outweighs a named error, and that outweighs a right result.
            return results.max().unwrap_or(Reaction::Right);
        }
        if began.elapsed() > 2 * MINUTE {
            return Reaction::Wrong(format!("producers hang: {}", place.log_text("p0.log")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a consumer daemon and a rank that reads every step from the oldest restart point on.
pub(super) fn consume(place: &Place, whole: &Whole, complete: bool) -> Reaction {
    let mut daemon = place.start("c");
    let began = Instant::now();
    while !place.log_text("c.log").contains("serving stream") {
        if let Ok(Some(status)) = daemon.0.try_wait() {
            return named("consumer", status.code(), &place.log_text("c.log"));
        }
        if began.elapsed() > MINUTE {
            return Reaction::Wrong(format!("a daemon hangs: {}", place.log_text("c.log")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let until = if complete { STEPS } else { whole.committed };
    let outcome = read(
        &place.path("s"),
        &whole.state,
        &whole.truth,
        until,
        complete,
    );
    daemon.signal("TERM");
    let code = daemon.wait(3 * MINUTE);
    let output = place.log_text("c.log");
    let _ = fs::remove_file(place.path("s"));
    match outcome {
        Outcome::Wrong(what) => Reaction::Wrong(format!("{what}: {output}")),
        Outcome::Stopped(why) if why.name() == "timeout" => {
            Reaction::Wrong(format!("a rank waits in vain: {why}: {output}"))
        }
        Outcome::Stopped(why) => Reaction::Named(format!("rank: {}", short(0, &why.to_string()))),
        Outcome::Right if code == Some(0) && !output.contains("panicked") => Reaction::Right,
        Outcome::Right => named("consumer", code, &output),
    }
}
