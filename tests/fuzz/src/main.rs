//! The fuzzer for one target: `BATCHWEAVE_FUZZ=record batchweave-fuzz [options of libFuzzer] [folders]`.
//! `make fuzz` builds it and runs all targets.
#![no_main]
#![forbid(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use batchweave_fuzz::{TARGETS, Target, find};
use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const VARIABLE: &str = "BATCHWEAVE_FUZZ";

static TARGET: OnceLock<&'static Target> = OnceLock::new();
/// The most bytes that one input has used.
static MOST: AtomicUsize = AtomicUsize::new(0);

fn chosen() -> &'static Target {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    let Some(target) = find(&name) else {
        let all: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("set {VARIABLE} to one of: {}", all.join(" "));
        std::process::exit(64);
    };
    // Memory kept from the first input on does not count as that input's.
    (target.run)(b"");
    target
}

/// Runs one input and compares the memory that it took with the target's bound.
fn run(input: &[u8]) {
    let target = TARGET.get_or_init(chosen);
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    (target.run)(input);
    let taken = HEAP.peak_usage().saturating_sub(before);
    let bound = target.memory.bound(input.len());
    assert!(
        taken <= bound,
        "{}: {taken} bytes of memory for an input of {} bytes, at most {bound} are allowed",
        target.name,
        input.len()
    );
    if taken > MOST.fetch_max(taken, Ordering::Relaxed) {
        eprintln!("peak memory: {taken} bytes for an input of {}", input.len());
    }
}

fuzz_target!(
    init: {
        TARGET.get_or_init(chosen);
    },
    |input: &[u8]| run(input)
);
