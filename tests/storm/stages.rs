//! Storms over stages: two lanes, the consumer daemon and the ranks of a job are killed at random over a faulty store, while
//! a person sets two stages. The batches must be those of producers that knew both before and lived on, and the ranks must
//! have received each.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use batchweave_core::ids::Step;
use batchweave_core::manifest::Entry;
use batchweave_tests::{Process, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::adversary::Beside;
use crate::alone;
use crate::job::{Job, LLM};
use crate::mixtures::check;
use crate::ordered::{CHANGE_AT, Daemons, FAULTS, Scene, three_sources, write_sources};

const DAEMONS: Daemons = &[("d0", &["l0"]), ("d1", &["l1"])];
/// Programs of the job.
const PROGRAMS: [&str; 3] = [LLM.daemon, LLM.ranks[0], LLM.ranks[1]];
/// Requests of all programs between two kills of the job, and the most of these kills.
const KILL_EVERY: u64 = 300;
const KILLS_MAX: u64 = 12;
/// The stages of each way to pack: name, rows per slice, tokens per row, and what `[stages.packing]` has.
type Shape = (&'static str, u32, u32, &'static str);
const CONCAT: [Shape; 2] = [
    ("long", 1, 2048, "mode = \"best_fit\"\nlook_ahead = 20"),
    ("again", 3, 300, "mode = \"concat\""),
];
const BEST_FIT: [Shape; 2] = [
    ("long", 1, 2048, "mode = \"concat\""),
    ("again", 4, 256, "look_ahead = 32"),
];
const CHAT: [Shape; 2] = [
    ("long", 1, 1024, "look_ahead = 16"),
    ("again", 2, 400, "look_ahead = 64"),
];
const BINS: [Shape; 2] = [
    ("long", 1, 2048, "mode = \"balanced\""),
    ("again", 3, 300, "mode = \"best_fit\"\nlook_ahead = 20"),
];
const CHAT_BINS: [Shape; 2] = [
    ("long", 2, 512, "mode = \"balanced\""),
    ("again", 1, 700, "look_ahead = 16"),
];

/// The part of a storm beside the kills of producers: the stages, the job, and its kills.
struct Person {
    job: Job,
    started: bool,
    /// The number of stages that are set.
    set: usize,
    kills: u64,
    next_kill: u64,
}

impl Beside for Person {
    fn act(&mut self, scene: &mut Scene, _: &[(&'static str, Process)], changed: bool) {
        // Before the stages are set, a job would let the producers pass their bound.
        if changed && !self.started {
            self.started = true;
            self.job.start_all(scene);
        }
        let requests = scene.server.stats().total();
        if self.started && self.kills < KILLS_MAX && requests >= self.next_kill {
            self.next_kill = requests + KILL_EVERY;
            let victim = PROGRAMS[scene.rng.random_range(0..PROGRAMS.len())];
            self.kills += u64::from(self.job.kill(victim));
        }
        self.job.supervise(scene);
    }

    fn has_ended(&self) -> bool {
        self.started && self.job.has_ended()
    }

    fn change(&mut self, scene: &mut Scene) -> bool {
        let name = CONCAT[self.set].0;
        let config = scene.path("d0.toml").display().to_string();
        let done = scene.command(&["stage", "set", name, "--config", &config]);
        self.set += usize::from(done);
        done
    }
}

/// Writes the input of the storm of a seed; returns its configuration, which begins inside of `[packing]`.
fn input(wild: &Scene, seed: u64) -> (&'static str, String) {
    let folder = wild.path("sources");
    let (mode, shapes, mut text) = match seed % 5 {
        n @ (0 | 3) => {
            write_sources(&folder, DAEMONS, seed);
            let text = three_sources(&folder).replace("mode = \"best_fit\"", "mode = \"concat\"");
            let shapes = if n == 0 { CONCAT } else { BINS };
            ("concat", shapes, text)
        }
        1 => {
            write_sources(&folder, DAEMONS, seed);
            ("best_fit", BEST_FIT, three_sources(&folder))
        }
        2 => ("chat", CHAT, talks(&folder, seed)),
        _ => ("chat", CHAT_BINS, talks(&folder, seed)),
    };
    for (name, rows_per_slice, seq_len, packing) in shapes {
        writeln!(
            text,
            "[[stages]]\nname = {name:?}\nseq_len = {seq_len}\nrows_per_slice = {rows_per_slice}\n\
             [stages.packing]\n{packing}"
        )
        .unwrap();
    }
    (mode, text)
}

/// Writes short conversations and their template.
fn talks(folder: &Path, seed: u64) -> String {
    std::fs::create_dir_all(folder).unwrap();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut lines = String::new();
    for n in 0..12_000 {
        let words: Vec<String> = (0..rng.random_range(1..20))
            .map(|_| format!("w{}", rng.random_range(0..5000)))
            .collect();
        let (asked, said) = (format!("{n}?"), words.join(" "));
        writeln!(
            lines,
            "{{\"messages\":[{{\"role\":\"user\",\"content\":{asked:?}}},\
             {{\"role\":\"assistant\",\"content\":{said:?}}}]}}"
        )
        .unwrap();
    }
    std::fs::write(folder.join("talks.jsonl"), lines).unwrap();
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|endoftext|>{% endfor %}";
    std::fs::write(folder.join("t.jinja"), template).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    format!(
        "mode = \"chat\"\nlook_ahead = 64\n[chat]\ntemplate = {:?}\n[source]\npaths = [{:?}]\n",
        path("t.jinja"),
        path("talks.jsonl")
    )
}

/// Runs a storm and the calm run with its stages. Returns kills of producers and of the job, epochs and batches.
fn storm(seed: u64) -> [u64; 4] {
    let mut wild = Scene::new(DAEMONS, seed, Some(FAULTS));
    let (mode, input) = input(&wild, seed);
    let mut person = Person {
        job: Job::new(&wild, LLM),
        started: false,
        set: 0,
        kills: 0,
        next_kill: 0,
    };
    let kills = wild.rage(&input, &mut person);
    let found = wild.content();
    let stages = found.changes.iter();
    let stages = stages.filter(|entry| matches!(entry, Entry::Stage(_)));
    assert_eq!(stages.count(), CHANGE_AT.len(), "{mode}");
    person.job.verify(&wild, found.digests.len() as Step);
    check(DAEMONS, &wild, &input, &found, seed);
    wild.runtime.block_on(wild.server.shutdown());
    [
        kills,
        person.kills,
        found.epochs,
        found.digests.len() as u64,
    ]
}

fn storms(count: u64) {
    let _alone = alone();
    let first = seed();
    let (began, mut all) = (Instant::now(), [0; 4]);
    for seed in first..first + count {
        for (sum, one) in all.iter_mut().zip(storm(seed)) {
            *sum += one;
        }
    }
    let [kills, of_job, epochs, batches] = all;
    assert!(kills > 0 && of_job > 0, "no process was killed");
    println!(
        "{}",
        serde_json::json!({
            "storms": count, "seed": first, "seconds": began.elapsed().as_secs_f64(),
            "kills": kills, "kills_of_job": of_job, "epochs": epochs, "batches": batches,
        })
    );
}

#[test]
fn a_storm_over_stages() {
    storms(1);
}

#[test]
#[ignore = "takes long; make test-long runs it"]
fn hundred_storms_over_stages() {
    storms(100);
}
