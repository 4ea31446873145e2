//! A job of a storm: its consumer daemon and its ranks.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use batchweave_core::ids::Step;
use batchweave_tests::{Process, program};
use serde_json::Value;

use crate::URL;
use crate::ordered::Scene;

/// The programs of a job. A rank's data coordinate is its place in the list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Programs {
    pub(super) job: &'static str,
    pub(super) daemon: &'static str,
    pub(super) ranks: &'static [&'static str],
    /// Data coordinates of the attempt; with fewer ranks the rest never connects.
    pub(super) world: u32,
}

/// A rank for each slice, or for half of them.
pub(super) const LLM: Programs = Programs {
    job: "llm",
    daemon: "consumer",
    ranks: &["r0", "r1"],
    world: 2,
};

impl Programs {
    fn names(self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.daemon).chain(self.ranks.iter().copied())
    }
}

pub(super) struct Job {
    programs: Programs,
    running: BTreeMap<&'static str, Process>,
}

impl Job {
    pub(super) fn new(scene: &Scene, programs: Programs) -> Self {
        let text = format!(
            "[store]\nurl = {URL:?}\nendpoint = {:?}\n[job]\nname = {:?}\nopen = true\nprogress_steps = 4\n\
             [socket]\npath = {:?}\n[arena]\nbytes = \"16MiB\"\nsegment_bytes = \"4MiB\"\n[prefetch]\n\
             bytes = \"8MiB\"\n[admin]\nlisten = \"off\"\n",
            scene.server.endpoint(),
            programs.job,
            socket(scene, programs),
        );
        std::fs::write(scene.path(&format!("{}.toml", programs.daemon)), text).unwrap();
        Self {
            programs,
            running: BTreeMap::new(),
        }
    }

    pub(super) fn start_all(&mut self, scene: &Scene) {
        for name in self.programs.names() {
            self.start(scene, name);
        }
    }

    fn start(&mut self, scene: &Scene, name: &'static str) {
        let file = |end: &str| scene.path(&format!("{name}.{end}")).display().to_string();
        let socket = socket(scene, self.programs);
        let (attempt, config) = ("5e".repeat(16), file("toml"));
        let [state, out, waits] = ["state", "out", "waits"].map(file);
        let rank = self.programs.ranks.iter().position(|rank| *rank == name);
        let [rank, world] =
            [rank.unwrap_or_default() as u32, self.programs.world].map(|n| n.to_string());
        let (program, args) = match name {
            _ if name == self.programs.daemon => ("batchweave-consumer", vec!["--config", &config]),
            _ => {
                let job = self.programs.job;
                let mut args = vec!["demo-rank", "--socket", &socket, "--job", job];
                args.extend(["--attempt", &attempt, "--rank", &rank, "--world", &world]);
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
        for name in self.programs.names() {
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
        let daemon = self.programs.daemon;
        self.running.keys().all(|name| *name == daemon)
    }

    /// Returns the ids of its processes.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.running.values().map(|process| process.0.id())
    }

    /// Returns false if the program does not run. Ranks mark their end: no kill leaves steps that are not proved.
    pub(super) fn kill(&mut self, name: &str) -> bool {
        let process = self.running.get_mut(name);
        process.is_some_and(|process| process.0.kill().is_ok())
    }

    /// Ends the daemon by SIGTERM, and waits until it has stored what it knows.
    pub(super) fn stop(&mut self) {
        if let Some(mut daemon) = self.running.remove(self.programs.daemon) {
            daemon.signal("TERM");
            daemon.wait(Duration::from_mins(5));
        }
    }

    /// Ends the daemon, and checks that the ranks received each step of the stream, with its digest.
    pub(super) fn verify(&mut self, scene: &Scene, steps: Step) {
        self.stop();
        let run = Command::new(program("batchweave"))
            .args(["--store", URL, "--endpoint", &scene.server.endpoint()])
            .args(["--json", "verify", "--job", self.programs.job])
            .envs(Scene::env())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&run.stderr);
        let report: Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
        let log = scene.log_text(self.programs.daemon);
        assert_eq!(report["verdict"], "proved", "{report} {stderr} {log}");
        assert_eq!(report["steps"], steps, "{report}");
    }
}

fn socket(scene: &Scene, programs: Programs) -> String {
    let name = format!("{}.s", programs.daemon);
    scene.path(&name).display().to_string()
}
