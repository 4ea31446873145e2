//! The ranks of a round: two of the job, one that evaluates and reads all slices, and one in Python
//! that evaluates a quarter. Each is a process that writes down the slices that it gets.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use batchweave_tests::{Process, checkout};

use super::place::{JOB, Place, SLICES};
use super::{STEP_TIME, STEPS, rank};

/// The data coordinate and size, and whether the rank belongs to the job.
const RUST: [(u32, u32, bool); 3] = [(0, 2, true), (1, 2, true), (0, 1, false)];
const PYTHON: (u32, u32, bool) = (2, 4, false);

struct Reader {
    dp_rank: u32,
    dp_size: u32,
    job: bool,
    python: Option<PathBuf>,
    file: PathBuf,
    process: Process,
}

pub(crate) struct Readers {
    all: Vec<Reader>,
    round: u64,
    first: u64,
    state: Option<String>,
}

/// The output of a rank: whether it had a session, its last step, its state at the end.
#[derive(Default)]
struct Written {
    joined: bool,
    steps: Vec<(u64, Vec<String>)>,
    done: Option<String>,
    fault: Option<String>,
}

fn written(file: &PathBuf) -> Written {
    let mut all = Written::default();
    let text = fs::read_to_string(file).unwrap_or_default();
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "joined" => all.joined = true,
            "done" => all.done = Some(rest.to_owned()),
            "late" => {}
            step if step.parse::<u64>().is_ok() => {
                let hashes = rest.split(' ').map(str::to_owned).collect();
                all.steps.push((step.parse().unwrap(), hashes));
            }
            _ => all.fault = Some(line.to_owned()),
        }
    }
    all
}

impl Readers {
    /// Starts the ranks of a round, from `state` where there is one.
    pub(crate) fn start(place: &Place, round: u64, first: u64, state: Option<&String>) -> Self {
        let mut readers = Self {
            all: Vec::new(),
            round,
            first,
            state: state.cloned(),
        };
        let rust = RUST.iter().map(|r| (*r, None));
        let python = place.python.iter().map(|p| (PYTHON, Some(p.clone())));
        for (number, ((dp_rank, dp_size, job), python)) in rust.chain(python).enumerate() {
            let file = place.path(&format!("round-{round}-{number}"));
            let process = readers.spawn(place, dp_rank, dp_size, job, python.as_ref(), &file);
            readers.all.push(Reader {
                dp_rank,
                dp_size,
                job,
                python,
                file,
                process,
            });
        }
        readers
    }

    /// Starts a process that appends to `file`.
    fn spawn(
        &self,
        place: &Place,
        dp_rank: u32,
        dp_size: u32,
        job: bool,
        python: Option<&PathBuf>,
        file: &PathBuf,
    ) -> Process {
        let before = written(file);
        let next = before.steps.last().map_or(self.first, |(step, _)| step + 1);
        let mut command;
        if let Some(python) = python {
            command = Command::new(python);
            command.arg(checkout().join("tests/e2e/vanish/rank.py"));
            command.env("PYTHONPATH", checkout().join("python/src"));
        } else {
            command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "--ignored", rank::TEST]);
        }
        let socket = place.path("ranks.sock");
        command
            .env("VANISH_SOCKET", socket)
            .env("VANISH_FILE", file)
            .env("VANISH_RANK", dp_rank.to_string())
            .env("VANISH_SIZE", dp_size.to_string())
            .env("VANISH_NEXT", next.to_string())
            .env("VANISH_STOP", (self.first + STEPS).to_string())
            .env("VANISH_STEP_MS", STEP_TIME.as_millis().to_string());
        if job {
            command.env("VANISH_JOB", JOB);
            command.env("VANISH_ATTEMPT", format!("{:032x}", self.round + 1));
            if before.joined {
                command.env("VANISH_RESUME", "1");
            } else if let Some(state) = &self.state {
                command.env("VANISH_STATE", state);
            }
        }
        let errors = fs::File::options()
            .create(true)
            .append(true)
            .open(place.path("ranks.log"))
            .unwrap();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        Process(command.spawn().unwrap())
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn process(&self, which: usize) -> &Process {
        &self.all[which].process
    }

    /// Kills a rank, and restarts it at its last step.
    pub(crate) fn restart(&mut self, place: &Place, which: usize, after: Duration) {
        let reader = &mut self.all[which];
        // The process may have ended by itself.
        let _ = reader.process.0.kill();
        reader.process.0.wait().unwrap();
        sleep(after);
        if written(&reader.file).done.is_some() {
            return;
        }
        let (dp_rank, dp_size, job) = (reader.dp_rank, reader.dp_size, reader.job);
        let (python, file) = (reader.python.clone(), reader.file.clone());
        let process = self.spawn(place, dp_rank, dp_size, job, python.as_ref(), &file);
        self.all[which].process = process;
    }

    /// Waits for all ranks and compares their slices. Returns the state of the job's first rank.
    pub(crate) fn end(mut self, place: &Place, deadline: Instant, round: &str) -> Option<String> {
        let (first, mut state) = (self.first, None);
        for reader in &mut self.all {
            let left = deadline.saturating_duration_since(Instant::now());
            let who = format!(
                "{round}: rank {} of {}{}",
                reader.dp_rank,
                reader.dp_size,
                reader.python.as_ref().map_or("", |_| " in Python")
            );
            while reader.process.0.try_wait().unwrap().is_none() {
                let says = || fs::read_to_string(&reader.file).unwrap_or_default();
                assert!(
                    Instant::now() < deadline,
                    "{who} did not end within {left:?}; it says\n{}\nthe daemon\n{}",
                    says(),
                    place.log_text()
                );
                sleep(Duration::from_millis(2));
            }
            let all = written(&reader.file);
            let log = || fs::read_to_string(place.path("ranks.log")).unwrap_or_default();
            assert_eq!(all.fault, None, "{who}: {}\n{}", log(), place.log_text());
            assert!(all.done.is_some(), "{who} did not end well: {}", log());
            let each = SLICES / reader.dp_size;
            let slices = reader.dp_rank * each..(reader.dp_rank + 1) * each;
            let steps: Vec<u64> = all.steps.iter().map(|(step, _)| *step).collect();
            let want: Vec<u64> = (first..first + STEPS).collect();
            assert_eq!(steps, want, "{who}: each step once, in order");
            for (step, hashes) in &all.steps {
                let want: Vec<_> = slices.clone().map(|s| &place.hashes[&(*step, s)]).collect();
                let got: Vec<_> = hashes.iter().collect();
                let is = || {
                    hashes
                        .iter()
                        .map(|hash| place.whose(hash))
                        .collect::<Vec<_>>()
                };
                assert_eq!(got, want, "{who}: step {step}; it got {:?}", is());
            }
            if reader.job && reader.dp_rank == 0 {
                state = all.done;
            }
            // Rounds are many.
            fs::remove_file(&reader.file).unwrap();
        }
        state
    }
}
