//! The consumer daemon and the ranks of a storm.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use batchweave_core::ids::Step;
use batchweave_tests::{Process, program};
use serde_json::Value;

use crate::URL;
use crate::ordered::Scene;

/// The daemon, and a rank for each slice of the stream.
pub(super) const PROGRAMS: [&str; 3] = ["consumer", "r0", "r1"];

pub(super) struct Job {
    running: BTreeMap<&'static str, Process>,
}

impl Job {
    pub(super) fn new(scene: &Scene) -> Self {
        let text = format!(
            "[store]\nurl = {URL:?}\nendpoint = {:?}\n[job]\nname = \"llm\"\nopen = true\nprogress_steps = 4\n\
             [socket]\npath = {:?}\n[arena]\nbytes = \"16MiB\"\nsegment_bytes = \"4MiB\"\n[prefetch]\n\
             bytes = \"8MiB\"\n[admin]\nlisten = \"off\"\n",
            scene.server.endpoint(),
            scene.path("s").display().to_string(),
        );
        std::fs::write(scene.path("consumer.toml"), text).unwrap();
        Self {
            running: BTreeMap::new(),
        }
    }

    pub(super) fn start_all(&mut self, scene: &Scene) {
        for name in PROGRAMS {
            self.start(scene, name);
        }
    }

    fn start(&mut self, scene: &Scene, name: &'static str) {
        let file = |end: &str| scene.path(&format!("{name}.{end}")).display().to_string();
        let socket = scene.path("s").display().to_string();
        let (attempt, config) = ("5e".repeat(16), file("toml"));
        let [state, out, waits] = ["state", "out", "waits"].map(file);
        let (program, args) = match name.strip_prefix('r') {
            None => ("batchweave-consumer", vec!["--config", &config]),
            Some(rank) => {
                let mut args = vec!["demo-rank", "--socket", &socket, "--job", "llm"];
                args.extend(["--attempt", &attempt, "--rank", rank, "--world", "2"]);
                args.extend(["--state-file", &state, "--out", &out, "--waits", &waits]);
                args.extend(["--mark-every", "8"]);
                ("batchweave-lab", args)
            }
        };
        let log = scene.path(&format!("{name}.log"));
        let process = Process::start(program, &args, &Scene::env(), &log);
        self.running.insert(name, process);
    }

    /// Starts what was killed or gave up again, except for ranks that have read to the end.
    pub(super) fn supervise(&mut self, scene: &Scene) {
        for name in PROGRAMS {
            let Some(process) = self.running.get_mut(name) else {
                continue;
            };
            match process.0.try_wait().unwrap().map(|status| status.code()) {
                None => {}
                Some(Some(0)) => drop(self.running.remove(name)),
                Some(None | Some(1 | 69)) => self.start(scene, name),
                Some(Some(code)) => panic!("{name}: exit {code}\n{}", scene.log_text(name)),
            }
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.running.keys().all(|name| *name == "consumer")
    }

    /// Returns false if the program does not run.
    pub(super) fn kill(&mut self, name: &str) -> bool {
        let process = self.running.get_mut(name);
        process.is_some_and(|process| process.0.kill().is_ok())
    }

    /// Ends the daemon, and checks that the ranks received each step of the stream, with its digest.
    pub(super) fn verify(&mut self, scene: &Scene, steps: Step) {
        if let Some(mut consumer) = self.running.remove("consumer") {
            consumer.signal("TERM");
            consumer.wait(Duration::from_mins(5));
        }
        let run = Command::new(program("batchweave"))
            .args(["--store", URL, "--endpoint", &scene.server.endpoint()])
            .args(["--json", "verify", "--job", "llm"])
            .envs(Scene::env())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&run.stderr);
        let report: Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
        assert_eq!(report["verdict"], "proved", "{report} {stderr}");
        assert_eq!(report["steps"], steps, "{report}");
    }
}
