//! `batchweave mixture` beside a producer that waits and goes on: what it refuses, plans, sets and shows.

use std::fmt::Write as _;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use batchweave_tests::{Process, program};
use serde_json::Value;

/// Much longer than a healthy producer needs.
const WITHIN: Duration = Duration::from_mins(2);

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["web", "code"] {
            let mut text = String::new();
            for line in 0..4000 {
                let body = "word ".repeat(line % 60);
                writeln!(text, "{{\"text\":\"{name} {line} {body}\"}}").unwrap();
            }
            std::fs::write(folder.path().join(format!("{name}.jsonl")), text).unwrap();
        }
        std::fs::create_dir(folder.path().join("stream")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts the producer, which waits after 40 steps with `bounded`, and ends after 200 batches.
    fn producer(&self, bounded: bool) -> Process {
        let mut text = format!(
            "[store]\nurl = {:?}\n[stream]\nslices = 2\nrows_per_slice = 2\nseq_len = 256\nproducers = [\"p0\"]\n\
             [producer]\nname = \"p0\"\nlimit = \"200 batches\"\n[tokenizer]\nkind = \"bytes\"\n",
            format!("file://{}", self.path("stream"))
        );
        if bounded {
            text.push_str("[ahead]\nmax_steps = 40\n");
        }
        for (name, weight) in [("web", 0.6), ("code", 0.4)] {
            let path = self.path(&format!("{name}.jsonl"));
            writeln!(
                text,
                "[[sources]]\nname = {name:?}\npaths = [{path:?}]\nweight = {weight}\nshuffle = {{ window = \"1MiB\" }}"
            )
            .unwrap();
        }
        std::fs::write(self.path("p0.toml"), text).unwrap();
        self.start("p0")
    }

    /// Configures a daemon with two lanes, which waits after 40 steps.
    fn lanes(&self) {
        let mut text = format!(
            "[store]\nurl = {:?}\n[stream]\nslices = 2\nrows_per_slice = 2\nseq_len = 256\norder = \"lanes\"\n\
             producers = [\"a\", \"b\"]\n[producer]\nlanes = [\"a\", \"b\"]\n[tokenizer]\nkind = \"bytes\"\n\
             [ahead]\nmax_steps = 40\nlane_lead = 1\n",
            format!("file://{}", self.path("stream"))
        );
        for (name, weight) in [("web", 0.6), ("code", 0.4)] {
            let path = self.path(&format!("{name}.jsonl"));
            writeln!(
                text,
                "[[sources]]\nname = {name:?}\npaths = [{path:?}]\nweight = {weight}\nepochs = 0"
            )
            .unwrap();
        }
        std::fs::write(self.path("lanes.toml"), text).unwrap();
    }

    fn start(&self, name: &str) -> Process {
        let config = self.path(&format!("{name}.toml"));
        let log = self.folder.path().join(format!("{name}.log"));
        Process::start("batchweave-producer", &["--config", &config], &[], &log)
    }

    fn mixture(&self, args: &[&str]) -> Output {
        let store = format!("file://{}", self.path("stream"));
        let begin = ["--store", &store, "mixture"];
        let mut command = Command::new(program("batchweave"));
        command.args(begin).args(args).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let out = self.mixture(&[args, &["--json"]].concat());
        assert!(out.status.success(), "{args:?}: {out:?}");
        serde_json::from_slice(&out.stdout).unwrap()
    }

    fn refused(&self, args: &[&str], code: i32, part: &str) {
        let out = self.mixture(args);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(part), "{args:?}: {text}");
    }
}

#[test]
fn a_mixture_is_planned_set_and_shown() {
    let scene = Scene::new();
    let mut running = scene.producer(true);
    let began = Instant::now();
    let planned = loop {
        let out = scene.mixture(&["plan", "web=1", "code=3", "--after", "30", "--json"]);
        let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        if report["producers"][0]["committed"] == 40 {
            break report;
        }
        assert!(began.elapsed() < WITHIN, "{out:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(
        (&planned["id"], &planned["planned"]),
        (&1.into(), &true.into())
    );
    assert_eq!(planned["producers"][0]["from"], 70);
    scene.refused(&["set", "wbe=1", "code=0"], 64, "did you mean web?");
    scene.refused(
        &["set", "web=1", "cod=3"],
        64,
        "has a source cod, did you mean code?",
    );
    scene.refused(&["set", "web=1"], 64, "no weight is given for code");
    scene.refused(&["set", "web=0", "code=0"], 64, "all weights are 0");
    scene.refused(
        &["set", "web=1", "web=2", "code=1"],
        64,
        "web is given twice",
    );
    scene.refused(
        &["set", "web=1", "code=1", "--producer", "p1"],
        1,
        "the stream has p0",
    );
    let shown = scene.json(&["show"]);
    assert_eq!(
        shown["mixtures"].as_array().unwrap().len(),
        1,
        "nothing was written"
    );
    let request = "000102030405060708090a0b0c0d0e0f";
    let set = [
        "set",
        "web=1",
        "code=3",
        "--after",
        "30",
        "--request",
        request,
    ];
    let made = scene.json(&set);
    assert_eq!(made["producers"], planned["producers"]);
    let again = scene.json(&set);
    assert_eq!(
        (&again["version"], &again["id"]),
        (&Value::Null, &Value::Null),
        "{again}"
    );
    running.signal("TERM");
    assert_eq!(running.wait(WITHIN), Some(0));
    assert_eq!(scene.producer(false).wait(WITHIN), Some(0));
    let shown = scene.json(&["show", "--steps", "200"]);
    let shares = [(0, 0, 70, [0.6, 0.4]), (1, 70, 200, [0.25, 0.75])];
    for (n, (id, from, until, wanted)) in shares.into_iter().enumerate() {
        let mixture = &shown["mixtures"][n];
        assert_eq!(
            (&mixture["id"], &mixture["from"]),
            (&id.into(), &from.into())
        );
        assert_eq!(mixture["counted"], serde_json::json!([from, until - 1]));
        for (source, wanted) in mixture["sources"].as_array().unwrap().iter().zip(wanted) {
            let given = source["given"].as_f64().unwrap();
            assert_eq!(source["wanted"], wanted);
            assert!((given - wanted).abs() < 0.02, "{mixture}");
        }
    }
    scene.refused(&["set", "web=1", "code=1"], 1, "p0 (finished)");
}

/// Under lanes a change begins with a step, in each lane with the batch that gets it.
#[test]
fn a_mixture_begins_with_a_step_of_lanes() {
    let scene = Scene::new();
    scene.lanes();
    let mut running = scene.start("lanes");
    let began = Instant::now();
    loop {
        let out = scene.mixture(&["plan", "web=1", "code=3", "--json"]);
        let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        // Both lanes are held back by then.
        if report["producers"][1]["committed"] == 20 && report["producers"][0]["committed"] == 20 {
            break;
        }
        assert!(began.elapsed() < WITHIN, "{out:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    scene.refused(
        &["set", "web=1", "code=3", "--from-step", "39"],
        1,
        "the first free step is at most 40",
    );
    scene.refused(
        &[
            "set",
            "web=1",
            "code=3",
            "--from-step",
            "50",
            "--after",
            "3",
        ],
        64,
        "cannot be used with",
    );
    let set = scene.json(&["set", "web=1", "code=3", "--from-step", "61"]);
    // Step 60 is the batch 30 of a, and 61 the batch 30 of b.
    assert_eq!(set["producers"][0]["from"], 31);
    assert_eq!(set["producers"][1]["from"], 30);
    scene.refused(
        &["plan", "web=1", "code=1", "--from-step", "45"],
        1,
        "changes already with its batch",
    );
    drop(running.0.kill());
}
