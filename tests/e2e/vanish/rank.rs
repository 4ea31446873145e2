//! A rank as its own process: this test binary again, with one test selected. It reads its steps and
//! writes down each with the hashes of its slices, as `rank.py` does:
//!
//! ```text
//! joined               there was a session
//! late NAME            next() gave up after its time-out, and is called again
//! STEP HASH HASH ...   a step was handed out
//! done STATE           all are read; the state to go on from
//! ```
//!
//! Any other line reports a fault: an error that waiting does not explain, or a wait longer than its
//! time-out.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use batchweave_client::{Client, ClientError, ConnectOptions, Slice, Start};
use batchweave_core::ids::Hash;
use rand::RngExt;

/// The path of the test below.
pub(crate) const TEST: &str = "vanish::rank::a_rank_by_itself";
/// The allowance beyond a time-out, for a busy machine and the time that the rank itself is frozen.
const SLACK: Duration = Duration::from_secs(10);

fn given(name: &str) -> Option<String> {
    std::env::var(format!("VANISH_{name}")).ok()
}

fn number(name: &str) -> u64 {
    given(name).unwrap().parse().unwrap()
}

/// Errors that a rank meets while it waits: its position does not change, and it may retry.
fn is_wait(error: &ClientError) -> bool {
    matches!(error.name(), "timeout" | "daemon_gone" | "no_daemon")
}

/// The hash of its tokens, without padding, so that Python computes the same.
pub(crate) fn hash_of(slice: &Slice) -> String {
    let tokens: &[u16] = slice.array("tokens").unwrap();
    let bytes: Vec<u8> = tokens
        .iter()
        .flat_map(|token| token.to_le_bytes())
        .collect();
    Hash::sha256(&bytes).to_string()
}

fn connect_options() -> ConnectOptions {
    let (next, resume) = (number("NEXT"), given("RESUME").is_some());
    ConnectOptions {
        job: given("JOB"),
        attempt: given("ATTEMPT"),
        dp_rank: number("RANK") as u32,
        dp_size: number("SIZE") as u32,
        global_rank: given("JOB").map(|_| number("RANK") as u32),
        start: given("STATE").map_or(Start::Step(next), Start::State),
        resume,
        ..ConnectOptions::new(given("SOCKET").unwrap())
    }
}

/// Returns the result of `call`, which it repeats within its time; each try may take its time-out.
fn patiently<T>(
    out: &mut File,
    mut call: impl FnMut(Duration) -> Result<T, ClientError>,
) -> Option<T> {
    loop {
        let timeout = Duration::from_millis(rand::rng().random_range(300..2000));
        let began = Instant::now();
        let result = call(timeout);
        let took = began.elapsed();
        let line = match result {
            _ if took > timeout + SLACK => {
                format!("waited {took:?} with a time-out of {timeout:?}")
            }
            Ok(value) => return Some(value),
            Err(error) if is_wait(&error) => {
                writeln!(out, "late {}", error.name()).unwrap();
                continue;
            }
            Err(error) => format!("error {}: {error}", error.name()),
        };
        writeln!(out, "{line}").unwrap();
        return None;
    }
}

#[test]
#[ignore = "a rank of the vanishing matrix, which starts it by itself"]
fn a_rank_by_itself() {
    let Some(file) = given("FILE") else { return };
    let mut out = File::options()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    let connect = |timeout| {
        Client::connect(ConnectOptions {
            timeout,
            ..connect_options()
        })
    };
    let Some(mut reader) = patiently(&mut out, connect) else {
        return;
    };
    writeln!(out, "joined").unwrap();
    let pause = Duration::from_millis(number("STEP_MS"));
    while reader.next_step() < number("STOP") {
        let Some(batch) = patiently(&mut out, |timeout| reader.next(timeout)) else {
            return;
        };
        let batch = batch.expect("the stream has more steps");
        let hashes: Vec<String> = batch.slices().iter().map(hash_of).collect();
        // One write: a kill leaves the whole line or nothing.
        let line = format!("{} {}\n", batch.step(), hashes.join(" "));
        out.write_all(line.as_bytes()).unwrap();
        std::thread::sleep(pause);
    }
    let state = reader.state_dict();
    // The model is saved here; the mark also reports the last steps to any running daemon.
    reader.checkpoint(&state).unwrap();
    reader.close(Duration::from_mins(1)).unwrap();
    writeln!(out, "done {state}").unwrap();
}
