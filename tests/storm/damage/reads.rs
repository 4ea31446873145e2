//! All objects are whole, and one read of one of them returns wrong bytes: each read of each program in
//! turn.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use batchweave_dev_s3::{Fault, Op, Options, Server};
use batchweave_store::list_all;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tokio::runtime::Runtime;

use super::trial::{Reaction, Undisturbed, consume, copy, produce, prove, reclaim, verify};
use super::whole::{Place, Whole};
use super::{AT_ONCE, PROGRAMS, mutation};
use crate::{URL, open_store};

/// One program, and the wrong read that it gets.
#[derive(Debug, Clone, Copy)]
struct WrongRead {
    program: &'static str,
    read: u64,
    how: Fault,
}

/// The stream in a server's own files; each trial gets a copy.
struct Served<'a> {
    whole: &'a Whole,
    undisturbed: &'a Undisturbed,
    folder: PathBuf,
    runtime: Runtime,
    next: AtomicUsize,
}

fn options(dir: &Path) -> Options {
    Options {
        dir: Some(dir.to_owned()),
        ..Options::default()
    }
}

impl<'a> Served<'a> {
    fn new(whole: &'a Whole, undisturbed: &'a Undisturbed) -> Self {
        let folder = whole.inputs().join("served");
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let server = Server::start(options(&folder)).await.unwrap();
            let store = open_store(server.endpoint()).await;
            for key in mutation::keys(&whole.root()) {
                let body = fs::read(whole.root().join(&key)).unwrap();
                let _ = store.upload(&key, body.into()).await.unwrap();
            }
            server.shutdown().await;
        });
        Self {
            whole,
            undisturbed,
            folder,
            runtime,
            next: AtomicUsize::new(0),
        }
    }

    /// Runs one program on a copy. Returns its reaction, the number of its reads, and of the wrong
    /// ones.
    fn trial(&self, program: &str, wrong_read: Option<WrongRead>) -> (Reaction, u64, u64) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let folder = self.whole.inputs().join(format!("r{number}"));
        fs::create_dir(&folder).unwrap();
        copy(&self.folder, &folder.join("served"));
        // A lock on the one link would lock all copies.
        fs::remove_file(folder.join("served/.lock")).unwrap();
        let started = Server::start(options(&folder.join("served")));
        let server = self.runtime.block_on(started).unwrap();
        let place = Place {
            folder,
            url: URL.to_owned(),
            endpoint: Some(server.endpoint()),
        };
        place.configure(self.whole.inputs(), 0);
        if let Some(wrong_read) = wrong_read {
            server
                .faults()
                .wrong_read_after(wrong_read.read, wrong_read.how);
        }
        let keys = || self.runtime.block_on(keys(&server));
        let reaction = match program {
            "verify" => verify(&place, self.whole),
            "proof" => prove(&place, self.undisturbed),
            "reclaimer" => reclaim(&place, keys, self.undisturbed),
            "producer" => produce(&place),
            _ => consume(&place, self.whole, false),
        };
        let stats = server.stats();
        let wrong_reads = Fault::ALL.into_iter().filter(|fault| fault.is_wrong_read());
        let results = wrong_reads
            .filter_map(|fault| stats.faults.get(fault.name()))
            .sum();
        self.runtime.block_on(server.shutdown());
        fs::remove_dir_all(&place.folder).unwrap();
        (reaction, stats.of(Op::Get), results)
    }
}

/// Lists all keys with a client, as the server's files have other names.
async fn keys(server: &Server) -> Vec<String> {
    let store = open_store(server.endpoint()).await;
    let mut keys = Vec::new();
    let listed = list_all(store.as_ref(), "", |object| keys.push(object.key));
    listed.await.unwrap();
    keys
}

/// Draws at most `count` wrong reads: each read with one bit flipped, and in another way, too. The
/// last read of each program, mostly of a range of data, comes first and in all ways.
fn draw(reads: &BTreeMap<&'static str, u64>, count: usize, seed: u64) -> Vec<WrongRead> {
    let others = [
        Fault::Foreign,
        Fault::Rotate,
        Fault::Short,
        Fault::Long,
        Fault::Spoil,
        Fault::Absent,
    ];
    let mut wrong_reads = Vec::new();
    for (&program, &reads) in reads {
        for read in 0..reads {
            let wrong_read = |how| WrongRead { program, read, how };
            wrong_reads.push(wrong_read(Fault::Flip));
            if read + 1 == reads {
                wrong_reads.extend(others.map(wrong_read));
            } else {
                wrong_reads.push(wrong_read(others[(read % others.len() as u64) as usize]));
            }
        }
    }
    wrong_reads.shuffle(&mut StdRng::seed_from_u64(seed));
    let last = |wrong_read: &WrongRead| wrong_read.read + 1 == reads[wrong_read.program];
    wrong_reads.sort_by_key(|wrong_read| !last(wrong_read));
    // The same number per program as long as there are some: programs differ in their reads.
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    let mut turn = |wrong_read: &WrongRead| {
        let turn = taken.entry(wrong_read.program).or_default();
        *turn += 1;
        *turn
    };
    let mut wrong_reads: Vec<(usize, WrongRead)> = wrong_reads
        .into_iter()
        .map(|wrong_read| (turn(&wrong_read), wrong_read))
        .collect();
    wrong_reads.sort_by_key(|(turn, _)| *turn);
    wrong_reads
        .into_iter()
        .map(|(_, wrong_read)| wrong_read)
        .take(count)
        .collect()
}

/// Checks that one wrong read changes nothing in each program's result.
pub(super) fn lied_to(whole: &Whole, undisturbed: &Undisturbed, count: usize, seed: u64) {
    let served = Served::new(whole, undisturbed);
    let mut reads = BTreeMap::new();
    for program in PROGRAMS {
        let (reaction, count, _) = served.trial(program, None);
        assert_eq!(reaction, Reaction::Right, "{program}");
        let _ = reads.insert(program, count);
    }
    let wrong_reads = draw(&reads, count, seed);
    println!("reads: {reads:?}; wrong_reads: {}", wrong_reads.len());
    let began = Instant::now();
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(wrong_read) = wrong_reads.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (reaction, _, wrong) = served.trial(wrong_read.program, Some(*wrong_read));
                    if reaction != Reaction::Right {
                        println!("WRONG {wrong_read:?}: {reaction:?}");
                    }
                    results.lock().unwrap().push((*wrong_read, reaction, wrong));
                }
            });
        }
    });
    let results = results.into_inner().unwrap();
    for program in PROGRAMS {
        let of = |r: &&(WrongRead, Reaction, u64)| r.0.program == program;
        let tried = results.iter().filter(of).count();
        let wrong = results.iter().filter(of).filter(|r| r.2 > 0).count();
        let right = results
            .iter()
            .filter(of)
            .filter(|r| r.1 == Reaction::Right)
            .count();
        println!(
            "{program:>9}: {tried} trials, {wrong} with a wrong read, {right} with the right result"
        );
    }
    println!("{} wrong_reads in {:.1?}", results.len(), began.elapsed());
    let wrong: Vec<_> = results.iter().filter(|r| r.1 != Reaction::Right).collect();
    assert!(
        wrong.is_empty(),
        "{} are wrong, the first: {:?}",
        wrong.len(),
        wrong[0]
    );
}
