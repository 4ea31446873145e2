//! One byte of one stored object is changed, missing or added, or one read of a whole object is wrong.
//! No program may return a wrong token, delete needed data, or call a damaged stream sound.

mod mutation;
mod rank;
mod reads;
mod trial;
mod whole;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use batchweave_tests::seed;

use self::mutation::{Mutation, class, draw, keys};
use self::trial::{Reaction, Undisturbed, consume, copy, produce, proof, prove, reclaim, verify};
use self::whole::{Place, Whole};
use crate::alone;

const PROGRAMS: [&str; 5] = ["verify", "proof", "reclaimer", "producer", "consumer"];
/// Trials that run at the same time.
const AT_ONCE: usize = 4;

/// Both on one stream, which takes longer to make than the trials.
#[test]
fn four_damaged_objects_and_four_wrong_reads_change_nothing() {
    let _alone = alone();
    let seed = seed();
    let whole = Whole::make(seed);
    let undisturbed = undisturbed(&whole);
    damaged(&whole, &undisturbed, 4, seed);
    reads::lied_to(&whole, &undisturbed, 4, seed);
}

/// Damages `BATCHWEAVE_TRIALS` objects; by default each object at least once, those of small
/// classes in every way.
#[test]
#[ignore = "takes minutes: make damage"]
fn each_damaged_object_gives_no_wrong_token_and_no_wrong_delete() {
    let _alone = alone();
    let seed = seed();
    let whole = Whole::make(seed);
    damaged(&whole, &undisturbed(&whole), trials(2400), seed);
}

/// Falsifies `BATCHWEAVE_TRIALS` of the reads of all programs; by default each of them.
#[test]
#[ignore = "takes minutes: make damage"]
fn each_wrong_read_of_a_whole_object_changes_nothing() {
    let _alone = alone();
    let seed = seed();
    let whole = Whole::make(seed);
    reads::lied_to(&whole, &undisturbed(&whole), trials(usize::MAX), seed);
}

fn trials(usual: usize) -> usize {
    std::env::var("BATCHWEAVE_TRIALS").map_or(usual, |n| n.parse().unwrap())
}

/// Counts the reactions of each program to each kind of damage in each class of object.
type Tally = BTreeMap<(&'static str, &'static str, Reaction), usize>;

fn damaged(whole: &Whole, spared: &Undisturbed, count: usize, seed: u64) {
    let began = Instant::now();
    let mutations = draw(&whole.root(), count, seed);
    println!(
        "the stream: {} objects; its reclaimer deletes {} and stands at {}",
        keys(&whole.root()).len(),
        spared.deleted.len(),
        spared.watermark,
    );
    let next = AtomicUsize::new(0);
    let tally = Mutex::new(Tally::new());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(mutation) = mutations.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let reaction = trial(whole, spared, Some(mutation));
                    for (program, reaction) in PROGRAMS.into_iter().zip(reaction) {
                        if let Reaction::Wrong(what) = &reaction {
                            let output = format!("{mutation:?}, {program}: {what}");
                            println!("WRONG {output}");
                            wrong.lock().unwrap().push(output);
                        }
                        let key = (class(&mutation.key), program, reaction);
                        *tally.lock().unwrap().entry(key).or_default() += 1;
                    }
                }
            });
        }
    });
    report(&tally.into_inner().unwrap(), mutations.len(), began);
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} are wrong, the first: {}",
        wrong.len(),
        wrong[0]
    );
}

/// Returns the results of the programs on an undamaged copy.
fn undisturbed(whole: &Whole) -> Undisturbed {
    let place = place(whole, None);
    let before = keys(&place.path("stream"));
    let all = Undisturbed {
        deleted: before.iter().cloned().collect(),
        watermark: u64::MAX,
        proof: proof(&place).1,
    };
    assert_eq!(all.proof["verdict"], "proved", "{}", all.proof);
    assert_eq!(
        reclaim(&place, || keys(&place.path("stream")), &all),
        Reaction::Right
    );
    let after = keys(&place.path("stream"));
    let run = place.cli(&["status"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let spared = Undisturbed {
        deleted: before
            .into_iter()
            .filter(|key| !after.contains(key))
            .collect(),
        watermark: status["watermark"].as_u64().unwrap(),
        proof: all.proof,
    };
    fs::remove_dir_all(&place.folder).unwrap();
    assert!(spared.deleted.iter().any(|key| key.starts_with("data/")));
    for reaction in trial(whole, &spared, None) {
        assert_eq!(reaction, Reaction::Right);
    }
    spared
}

/// Copies the stream into a new folder and damages one object.
fn place(whole: &Whole, mutation: Option<&Mutation>) -> Place {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = whole.inputs().join(format!("t{number}"));
    fs::create_dir(&folder).unwrap();
    let root = folder.join("stream");
    copy(&whole.root(), &root);
    if let Some(mutation) = mutation {
        mutation.apply(&root);
    }
    let url = format!("file://{}", root.display());
    let place = Place {
        folder,
        url,
        endpoint: None,
    };
    place.configure(whole.inputs(), 0);
    place
}

/// Runs all four programs; each that writes gets its own copy of the stream.
fn trial(whole: &Whole, spared: &Undisturbed, mutation: Option<&Mutation>) -> [Reaction; 5] {
    let first = place(whole, mutation);
    let verified = verify(&first, whole);
    let proved = prove(&first, spared);
    let reclaimed = reclaim(&first, || keys(&first.path("stream")), spared);
    let second = place(whole, mutation);
    let produced = produce(&second);
    let consumed = consume(&second, whole, produced == Reaction::Right);
    for place in [first, second] {
        fs::remove_dir_all(&place.folder).unwrap();
    }
    [verified, proved, reclaimed, produced, consumed]
}

fn report(tally: &Tally, mutations: usize, began: Instant) {
    println!("{mutations} mutations in {:.1?}", began.elapsed());
    for ((class, program, reaction), count) in tally {
        let reaction = match reaction {
            Reaction::Right => "as if it were whole".to_owned(),
            Reaction::Named(name) => name.clone(),
            Reaction::Wrong(_) => "WRONG".to_owned(),
        };
        println!("{class:>10} {program:>9} {count:>5}  {reaction}");
    }
}
