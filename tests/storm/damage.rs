//! One byte of one stored object is wrong, missing or too many, and then one read of a whole object: no
//! program gives a wrong token, deletes what is needed, or calls a stream sound that lacks something.

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
use self::trial::{Took, Undisturbed, consume, copy, produce, proof, prove, reclaim, verify};
use self::whole::{Place, Whole};
use crate::alone;

const PROGRAMS: [&str; 5] = ["verify", "proof", "reclaimer", "producer", "consumer"];
/// Trials side by side.
const AT_ONCE: usize = 4;

#[test]
fn sixty_damaged_objects_give_no_wrong_token_and_no_wrong_delete() {
    let _alone = alone();
    damaged(60);
}

/// Damages `BATCHWEAVE_TRIALS` objects; by default each object at least once, those of small classes in
/// every way.
#[test]
#[ignore = "takes minutes: make damage"]
fn each_damaged_object_gives_no_wrong_token_and_no_wrong_delete() {
    let _alone = alone();
    damaged(trials(2400));
}

#[test]
fn forty_wrong_reads_of_whole_objects_change_nothing() {
    let _alone = alone();
    let seed = seed();
    let whole = Whole::make(seed);
    reads::lied_to(&whole, &undisturbed(&whole), 40, seed);
}

/// Lies in `BATCHWEAVE_TRIALS` of the reads of all programs; by default in each of them.
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

/// How often each program took each class of object in each way.
type Tally = BTreeMap<(&'static str, &'static str, Took), usize>;

fn damaged(count: usize) {
    let seed = seed();
    let began = Instant::now();
    let whole = Whole::make(seed);
    let spared = undisturbed(&whole);
    let mutations = draw(&whole.root(), count, seed);
    println!(
        "the stream: {} objects, made in {:.1?}; its reclaimer deletes {} and stands at {}",
        keys(&whole.root()).len(),
        began.elapsed(),
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
                    let took = trial(&whole, &spared, Some(mutation));
                    for (program, took) in PROGRAMS.into_iter().zip(took) {
                        if let Took::Wrong(what) = &took {
                            let said = format!("{mutation:?}, {program}: {what}");
                            println!("WRONG {said}");
                            wrong.lock().unwrap().push(said);
                        }
                        let key = (class(&mutation.key), program, took);
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

/// What the programs do on an undamaged copy.
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
        Took::Right
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
    for took in trial(whole, &spared, None) {
        assert_eq!(took, Took::Right);
    }
    spared
}

/// A copy of the stream in a folder of its own, with one object damaged.
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

/// All four programs, those that write to the stream each with a copy that the other has not touched.
fn trial(whole: &Whole, spared: &Undisturbed, mutation: Option<&Mutation>) -> [Took; 5] {
    let first = place(whole, mutation);
    let verified = verify(&first, whole);
    let proved = prove(&first, spared);
    let reclaimed = reclaim(&first, || keys(&first.path("stream")), spared);
    let second = place(whole, mutation);
    let produced = produce(&second);
    let consumed = consume(&second, whole, produced == Took::Right);
    for place in [first, second] {
        fs::remove_dir_all(&place.folder).unwrap();
    }
    [verified, proved, reclaimed, produced, consumed]
}

fn report(tally: &Tally, mutations: usize, began: Instant) {
    println!("{mutations} mutations in {:.1?}", began.elapsed());
    for ((class, program, took), count) in tally {
        let took = match took {
            Took::Right => "as if it were whole".to_owned(),
            Took::Named(name) => name.clone(),
            Took::Wrong(_) => "WRONG".to_owned(),
        };
        println!("{class:>10} {program:>9} {count:>5}  {took}");
    }
}
