//! The course of a demo: collect text, start all processes, kill some, wait for the end, check.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use batchweave_daemon::Exit;
use batchweave_log::{Located, Log};

use super::aftermath::{self, Aftermath};
use super::corpus::{self, Corpus};
use super::order::{DemoChange, DemoSource};
use super::processes::{Running, free_port, stopped};
use super::said::{say, show};
use super::scenario::{self, Kill, Victim};
use super::scrape::Counters;
use super::setup::{JOB, RANKS, SHAPE, Setup};
use super::summary::Summary;
use super::{DemoArgs, DemoError, DemoStore, checker, kept, mixture};
use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::count;

const POLL: Duration = Duration::from_millis(15);
/// Bytes of text per token, roughly; used only to time the kills.
const BYTES_PER_TOKEN: u64 = 4;
/// Steps ahead of the ranks whose bytes are recorded: more at once would delay the kills.
const RECORDED_AHEAD: u64 = 64;
/// The mixture changes when one of this number of steps is committed: producers are far ahead of the ranks.
const CHANGE_AFTER_PART: u64 = 20;

/// Runs the demo; the summary is printed to standard output, progress to standard error.
pub(crate) async fn run(mut args: DemoArgs, context: &Context) -> Result<Exit, CliError> {
    if let Some(store) = context.store_option() {
        args.store = store.parse().map_err(DemoError::Usage)?;
    } else if args.keep {
        // The embedded server's objects end with it.
        args.store = DemoStore::File;
    }
    let mut folder = tempfile::Builder::new()
        .prefix("batchweave-demo-")
        .tempdir()
        .map_err(|e| DemoError::io("create", &std::env::temp_dir(), &e))?;
    let outcome = Box::pin(Demo::play(&args, folder.path())).await;
    if args.keep || is_worth_a_look(&outcome) {
        folder.disable_cleanup(true);
        eprintln!("kept: {}", folder.path().display());
    }
    let summary = outcome?;
    let text = if context.json() {
        summary.json().to_string()
    } else {
        summary.table()
    };
    writeln!(std::io::stdout(), "{text}")?;
    if args.keep {
        eprintln!("{}", kept::commands(&args, folder.path(), &summary));
    }
    exit_of(&summary)
}

fn exit_of(summary: &Summary) -> Result<Exit, CliError> {
    let unproved = summary.aftermath.contradiction.as_ref();
    match (summary.verdict.examples.first(), unproved) {
        (None, None) => Ok(Exit::Ok),
        (Some(first), _) => Err(DemoError::Mismatch {
            mismatches: summary.verdict.mismatches,
            first: first.clone(),
        }
        .into()),
        (None, Some(why)) => Err(DemoError::Unproved {
            job: JOB,
            why: why.clone(),
        }
        .into()),
    }
}

/// Whether to keep the folder: after a failed process or proof, not after wrong arguments.
fn is_worth_a_look(outcome: &Result<Summary, DemoError>) -> bool {
    match outcome {
        Ok(summary) => {
            !summary.verdict.examples.is_empty() || summary.aftermath.contradiction.is_some()
        }
        Err(DemoError::Usage(_)) => false,
        Err(_) => true,
    }
}

struct Demo<'a> {
    args: &'a DemoArgs,
    setup: Setup,
    admin: u16,
    expected_steps: u64,
    producers: Vec<Running>,
    consumer: Running,
    log: Log,
    sources: Vec<DemoSource>,
    /// The change of the mixture, once it is made.
    change: Option<DemoChange>,
    /// Bytes of each step's frames, recorded at the commit because the step may be reclaimed later.
    step_bytes: Vec<u64>,
    ranks: Vec<Running>,
    kills: Vec<Kill>,
    /// Kills that were due when their process had ended.
    unmade: u32,
    counters: Counters,
    deadline: Instant,
}

impl<'a> Demo<'a> {
    async fn play(args: &'a DemoArgs, folder: &Path) -> Result<Summary, DemoError> {
        let seed = args
            .seed
            .unwrap_or_else(|| u64::from(rand::random::<u32>()));
        eprintln!("collecting text ...");
        let corpus = corpus::collect(args.input.as_deref(), &folder.join("corpus"))?;
        let setup = Setup::new(args, folder).await?;
        eprintln!(
            "{} documents, {:.1} MB; store {}; seed {seed}",
            corpus.documents,
            corpus.bytes as f64 / 1e6,
            setup.url
        );
        let began = Instant::now();
        let mut demo = Self::start(args, setup, &corpus, seed).await?;
        demo.watch().await?;
        let trained = demo.trained();
        demo.committed(trained).await;
        let needed = demo.needed_bytes(trained);
        demo.stop().await?;
        let elapsed = began.elapsed();
        eprintln!("reclaiming the rest and proving the run by its ledgers ...");
        let aftermath = aftermath::inspect(&mut demo.log).await?;
        demo.stop_store().await?;
        eprintln!("checking every token against the documents ...");
        demo.summarize(corpus, seed, elapsed, needed, aftermath)
    }

    async fn start(
        args: &'a DemoArgs,
        setup: Setup,
        corpus: &Corpus,
        seed: u64,
    ) -> Result<Self, DemoError> {
        let admin = free_port().map_err(|e| DemoError::io("listen on", &setup.folder, &e))?;
        let attempt = format!("{seed:032x}");
        let mut producers = (0..SHAPE.producers)
            .map(|n| setup.producer(n, corpus)?.start())
            .collect::<Result<Vec<_>, DemoError>>()?;
        let log = setup.open_log(&mut producers[0]).await?;
        let consumer = setup.consumer(admin)?.start()?;
        let ranks = (0..RANKS)
            .map(|rank| setup.rank(rank, args, &attempt).start())
            .collect::<Result<_, DemoError>>()?;
        let estimated = corpus.bytes / BYTES_PER_TOKEN / SHAPE.advance() as u64;
        Ok(Self {
            args,
            admin,
            expected_steps: args.steps.unwrap_or(estimated).max(1),
            producers,
            consumer,
            ranks,
            kills: scenario::draw(seed, args.kills, SHAPE.producers, RANKS),
            unmade: 0,
            counters: Counters::default(),
            log,
            sources: mixture::sources(corpus),
            change: None,
            step_bytes: Vec::new(),
            deadline: Instant::now() + Duration::from_secs(args.timeout),
            setup,
        })
    }

    /// Kills and restarts processes as scheduled and shows progress, until all ranks have ended.
    async fn watch(&mut self) -> Result<(), DemoError> {
        let mut shown = Instant::now();
        loop {
            let trained = self.trained();
            let committed = self.committed(trained).await;
            self.kill_due(committed, trained).await?;
            self.change_mixture(committed).await?;
            if self.all_ranks_ended()? {
                break;
            }
            self.check_daemons()?;
            if Instant::now() > self.deadline {
                let waiting = self
                    .ranks
                    .iter_mut()
                    .find_map(|r| r.ended().is_none().then_some(r));
                let slow = waiting.unwrap_or(&mut self.consumer);
                return Err(slow.failed("did not come to its end in time (--timeout)"));
            }
            if shown.elapsed() > Duration::from_millis(100) {
                shown = Instant::now();
                self.counters.read(self.admin).await;
                show(committed, trained);
            }
            tokio::time::sleep(POLL).await;
        }
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
        self.unmade += self.kills.len() as u32;
        if self.unmade > 0 {
            let unmade = count(self.unmade.into(), "kill");
            eprintln!("{unmade} of this seed came too late: the process had ended");
        }
        Ok(())
    }

    async fn kill_due(&mut self, committed: u64, trained: u64) -> Result<(), DemoError> {
        let reached = |kill: &Kill| match kill.victim {
            Victim::Producer(_) => committed,
            Victim::Consumer | Victim::Rank(_) => trained,
        };
        let due = |kill: &Kill| reached(kill) as f64 >= kill.at * self.expected_steps as f64;
        let Some(index) = self.kills.iter().position(due) else {
            return Ok(());
        };
        let kill = self.kills.remove(index);
        tokio::time::sleep(Duration::from_millis(kill.delay_ms)).await;
        let target = match kill.victim {
            Victim::Producer(n) => {
                // On a fast machine the drawn producer may have finished; then the other is killed.
                let alive = self.producers.iter_mut().position(|p| p.ended().is_none());
                let drawn_ended = self.producers[n].ended().is_some();
                &mut self.producers[alive.filter(|_| drawn_ended).unwrap_or(n)]
            }
            Victim::Consumer => {
                self.counters.read(self.admin).await;
                self.counters.end_life();
                &mut self.consumer
            }
            Victim::Rank(n) => &mut self.ranks[n],
        };
        if target.ended().is_none() {
            let name = target.program.name.clone();
            target.kill_and_restart().await?;
            say(&format!(
                "killed {name} at step {}; started again",
                reached(&kill)
            ));
        } else {
            self.unmade += 1;
        }
        Ok(())
    }

    async fn change_mixture(&mut self, committed: u64) -> Result<(), DemoError> {
        if self.change.is_some() || committed * CHANGE_AFTER_PART < self.expected_steps {
            return Ok(());
        }
        self.change = mixture::change(&mut self.log, &self.sources, SHAPE.producers).await?;
        if self.change.is_some() {
            say(&format!(
                "changed the mixture of the sources at step {committed}"
            ));
        }
        Ok(())
    }

    fn all_ranks_ended(&mut self) -> Result<bool, DemoError> {
        let mut all = true;
        for rank in &mut self.ranks {
            match rank.ended() {
                None => all = false,
                Some(status) if status.success() => {}
                Some(status) => return Err(rank.failed(&format!("failed ({status})"))),
            }
        }
        Ok(all)
    }

    fn check_daemons(&mut self) -> Result<(), DemoError> {
        for producer in &mut self.producers {
            if let Some(status) = producer.ended().filter(|s| !s.success()) {
                return Err(producer.failed(&format!("failed ({status})")));
            }
        }
        match self.consumer.ended() {
            Some(status) => Err(self.consumer.failed(&format!("ended ({status})"))),
            None => Ok(()),
        }
    }

    /// Returns the number of steps that every rank has written.
    fn trained(&self) -> u64 {
        let row_bytes = 4 * (SHAPE.seq_len as u64 + 1);
        let slice_bytes = 16 + SHAPE.rows_per_slice as u64 * row_bytes;
        let step_bytes = slice_bytes * (SHAPE.slices / RANKS) as u64;
        let bytes = |rank| fs::metadata(self.setup.rank_out(rank)).map_or(0, |m| m.len());
        (0..RANKS)
            .map(|rank| bytes(rank) / step_bytes)
            .min()
            .unwrap_or(0)
    }

    /// Returns the number of steps in the log, and records the bytes of those that ranks have trained, or soon will.
    async fn committed(&mut self, trained: u64) -> u64 {
        // For progress only: the daemons report errors.
        let _ = self.log.catch_up().await;
        let head = self.log.manifest().next_step();
        let end = head.min(trained + RECORDED_AHEAD);
        for step in self.step_bytes.len() as u64..end {
            let Ok(Located::At(entry)) = self.log.locate(step).await else {
                break;
            };
            let parts = entry.tgb.parts.iter();
            self.step_bytes.push(parts.map(|part| part.length).sum());
        }
        head
    }

    async fn stop(&mut self) -> Result<(), DemoError> {
        self.counters.read(self.admin).await;
        let within = Duration::from_secs(20);
        let status = self.consumer.stop(within).await?;
        if !stopped(status) {
            return Err(self
                .consumer
                .failed(&format!("did not stop in order ({status})")));
        }
        for producer in &mut self.producers {
            let status = producer.stop(within).await?;
            if !stopped(status) {
                return Err(producer.failed(&format!("failed ({status})")));
            }
        }
        Ok(())
    }

    async fn stop_store(&mut self) -> Result<(), DemoError> {
        if let Some(server) = &mut self.setup.server {
            server.stop(Duration::from_secs(20)).await?;
        }
        Ok(())
    }

    /// Returns the bytes of the frames of the first `steps` steps, the least that must be read.
    fn needed_bytes(&self, steps: u64) -> u64 {
        self.step_bytes.iter().take(steps as usize).sum()
    }

    /// Returns the seconds for which a rank waited, step by step.
    fn waits_of(&self, rank: usize) -> Vec<f64> {
        let text = fs::read_to_string(self.setup.rank_waits(rank)).unwrap_or_default();
        let waits = text.lines().filter_map(|line| line.parse().ok());
        waits.collect()
    }

    fn summarize(
        self,
        corpus: Corpus,
        seed: u64,
        elapsed: Duration,
        needed: u64,
        aftermath: Aftermath,
    ) -> Result<Summary, DemoError> {
        let outs: Vec<_> = (0..RANKS).map(|r| self.setup.rank_out(r)).collect();
        let waits = (0..RANKS).flat_map(|rank| self.waits_of(rank)).collect();
        let documents = checker::Documents {
            sources: self.sources,
            changes: self.change.clone().into_iter().collect(),
            shuffle: mixture::SHUFFLE,
        };
        let verdict = checker::check(&documents, &outs, SHAPE, self.args.steps)?;
        let restarts = |all: &[Running]| all.iter().map(|r| r.restarts).sum();
        Ok(Summary {
            ranks: RANKS,
            seed,
            admin: self.admin,
            until: self.args.steps,
            store: self.setup.url.clone(),
            elapsed,
            producer_restarts: restarts(&self.producers),
            consumer_restarts: self.consumer.restarts,
            rank_restarts: restarts(&self.ranks),
            bytes_fetched: self.counters.sum("fetched_bytes_total", &[]),
            bytes_needed: needed as f64,
            data_requests: self.counters.data_requests(),
            waits,
            mixture: self.change.map(|change| change.from),
            corpus,
            verdict,
            aftermath,
        })
    }
}
