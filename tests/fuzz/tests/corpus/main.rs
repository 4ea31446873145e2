//! Every file of `tests/fuzz/inputs` through its target, and some mutations of each, in every test run without the
//! fuzzer. `BLESS=1` writes the seeds, which are made from the golden files and encoders.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a panic is how a test reports

mod mutate;
mod seeds;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use batchweave_fuzz::{TARGETS, Target};
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Mutations of all inputs of one target; fewer in a build that is not optimized.
const MUTATIONS: usize = if cfg!(debug_assertions) { 200 } else { 2000 };
/// The most bytes of an input in the repository.
const INPUT_BYTES_MAX: u64 = 16 << 10;
const CORPUS_BYTES_MAX: u64 = 1 << 20;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("inputs")
}

/// Returns the inputs that are kept for a target, by name.
fn kept(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = folder().join(target.name);
    let files = fs::read_dir(&folder)
        .unwrap_or_else(|why| panic!("{}: {why}", folder.display()))
        .map(|file| file.unwrap());
    let read = |file: fs::DirEntry| {
        let name = file.file_name().into_string().unwrap();
        (name, fs::read(file.path()).unwrap())
    };
    let mut all: Vec<_> = files.map(read).collect();
    all.sort();
    all
}

#[test]
fn every_target_has_a_folder_and_every_folder_a_target() {
    let named: BTreeSet<String> = TARGETS.iter().map(|t| t.name.to_owned()).collect();
    assert_eq!(named.len(), TARGETS.len(), "two targets of one name");
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap());
    let folders: BTreeSet<String> = entries
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(folders, named);
    let mut all = 0;
    for target in TARGETS {
        let inputs = kept(target);
        assert!(!inputs.is_empty(), "{} has no input", target.name);
        for (name, input) in inputs {
            let bytes = input.len() as u64;
            assert!(bytes <= INPUT_BYTES_MAX, "{}/{name}: {bytes}", target.name);
            all += bytes;
        }
    }
    assert!(all <= CORPUS_BYTES_MAX, "tests/fuzz/inputs has {all} bytes");
}

/// Runs an input; a panic names the input.
fn run(target: &Target, name: &str, input: &[u8]) {
    let run = target.run;
    if std::panic::catch_unwind(|| run(input)).is_err() {
        let file = std::env::temp_dir().join(format!("batchweave-fuzz-{}", target.name));
        fs::write(&file, input).unwrap();
        panic!(
            "{} from {name}: the input is in {}",
            target.name,
            file.display()
        );
    }
}

#[test]
fn kept_inputs_and_mutations_of_them() {
    // Targets are independent, and one of them may take long.
    std::thread::scope(|scope| {
        for target in TARGETS {
            scope.spawn(move || one_target(target));
        }
    });
}

fn one_target(target: &Target) {
    let kept = kept(target);
    for (name, input) in &kept {
        run(target, name, input);
    }
    // Seeded by the target's name: a run can be repeated, and no two targets do the same.
    let mut seed = [0; 32];
    for (place, byte) in seed.iter_mut().zip(target.name.bytes()) {
        *place = byte;
    }
    let mut random = SmallRng::from_seed(seed);
    for _ in 0..MUTATIONS {
        let (name, input) = mutate::one(&kept, &mut random);
        run(target, &name, &input);
    }
}

/// Each seed in `tests/fuzz/inputs` is what the golden files and encoders make today.
#[test]
fn seeds_are_kept() {
    for target in TARGETS {
        let seeds = seeds::of(target.name);
        assert!(!seeds.is_empty(), "{} has no seed", target.name);
        for (number, seed) in seeds.iter().enumerate() {
            let file = folder().join(target.name).join(format!("seed-{number}"));
            if std::env::var_os("BLESS").is_some() {
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(&file, seed).unwrap();
            }
            let stored = fs::read(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
            assert!(stored == *seed, "{} is another", file.display());
        }
    }
}
