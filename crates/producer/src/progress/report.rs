//! Reports progress: on a terminal as a line that is drawn over again, elsewhere as a line of the log every ten
//! seconds in which something was done; and always on the status page.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use batchweave_core::order::Limit;
use batchweave_daemon::health::Health;
use batchweave_daemon::live_line::{LiveLine, head};
use tokio::time::Instant;
use tracing::Level;

use super::InputProgress;
use super::rate::Window;
use super::render::View;
use crate::config::{ProducerConfig, RunLimit};
use crate::flow_control::PRODUCING;
use crate::metrics::Metrics;

/// Interval between drawings of the line.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// Interval between lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Interval between updates of the status page.
const PAGE_EVERY: Duration = Duration::from_secs(1);
/// Most characters of a file's name or a reason in the log.
const NAME_CHARS: usize = 300;

/// Reports the progress of a producer until it is dropped.
pub(crate) struct Reporter {
    producer: String,
    limit: RunLimit,
    /// The producer is this one of `of` that share the limit.
    index: u32,
    of: u32,
    progress: Arc<InputProgress>,
    metrics: Arc<Metrics>,
    health: Health,
    /// Whether it may draw a line: several producers would draw over each other.
    draws: bool,
    window: Window,
    /// By the index of the source.
    of_sources: Vec<Window>,
}

impl Reporter {
    pub(crate) fn new(
        config: &ProducerConfig,
        progress: Arc<InputProgress>,
        metrics: Arc<Metrics>,
        health: Health,
        draws: bool,
    ) -> Self {
        Self {
            producer: config.producer.name.clone(),
            limit: config.producer.limit,
            index: config.producer.index,
            of: config.producer.of,
            progress,
            metrics,
            health,
            draws,
            window: Window::default(),
            of_sources: Vec::new(),
        }
    }

    /// Reports until it is dropped.
    pub(crate) async fn run(mut self) -> Infallible {
        let mut line = LiveLine::default();
        let mut logged_at = Instant::now();
        let mut logged = (0, 0);
        let mut told_at = Instant::now();
        loop {
            tokio::time::sleep(DRAW_EVERY).await;
            let due = told_at.elapsed() >= PAGE_EVERY;
            let quiet = !tracing::enabled!(Level::INFO);
            if quiet {
                line.erase();
            }
            if quiet && !due {
                continue;
            }
            let view = self.view(Instant::now());
            if due {
                told_at = Instant::now();
                self.metrics.share.set(view.share().unwrap_or(0.0));
                for (name, text) in view.facts() {
                    self.health.tell(name, text);
                }
            }
            if quiet {
                continue;
            }
            if let Some(columns) = line.columns().filter(|_| self.draws) {
                line.draw(&view.line(columns));
                continue;
            }
            line.erase();
            let done = (view.documents, view.batches);
            // A producer that is held back, or waits for files, has a line of its own in the log.
            if logged_at.elapsed() >= LOG_EVERY && done != logged {
                (logged_at, logged) = (Instant::now(), done);
                log(&view);
            }
        }
    }

    fn view(&mut self, now: Instant) -> View {
        let metrics = &self.metrics;
        let input = self.progress.now();
        let tokens = metrics.tokens.get();
        // Before the first chunk the place where a restart continues is unknown in bytes.
        let speeds = input
            .as_ref()
            .and_then(|input| self.window.add(now, tokens, input.bytes));
        let sources = input.as_ref().map_or(&[][..], |input| &input.sources);
        self.of_sources.resize_with(sources.len(), Window::default);
        let windows = self.of_sources.iter_mut().zip(sources);
        let of_sources = windows
            .map(|(window, source)| Some(window.add(now, 0, source.bytes)?.bytes))
            .collect();
        let (ready, doing) = self.health.get();
        let hindered = !ready || doing != PRODUCING;
        View {
            producer: self.producer.clone(),
            input,
            speeds,
            of_sources,
            documents: metrics.documents.get(),
            tokens,
            of_limit: self.of_limit(),
            balance: metrics.balance.text(),
            batches: metrics.batches(),
            hindered: hindered.then_some(doing),
        }
    }
}

impl Reporter {
    /// Returns the share of the limit that is done.
    fn of_limit(&self) -> Option<f64> {
        let taken = self.progress.now().map_or([0; 2], |input| input.taken);
        let of_batches = self.limit.batches(self.index, self.of);
        let of_sampler = self.limit.of_sampler(self.index, self.of);
        let (done, most) = match (of_batches, of_sampler) {
            (Some(most), _) => (self.metrics.batches(), most),
            (_, Some(Limit::Documents(most))) => (taken[0], most),
            (_, Some(Limit::Tokens(most))) => (taken[1], most),
            (None, None) => return None,
        };
        Some(done as f64 / most.max(1) as f64)
    }
}

fn log(view: &View) {
    let input = view.input.as_ref();
    let percent = view.share().map(|share| (share * 1000.0).floor() / 10.0);
    let left_s = view.seconds_left().map(|seconds| seconds.round() as u64);
    let tokens_per_second = view.speeds.map(|speeds| speeds.tokens.round() as u64);
    let pass = input.map(|input| input.pass.0);
    let file = input.map(|input| head(&input.name, NAME_CHARS));
    let doing = view.hindered.as_ref().map(|why| head(why, NAME_CHARS));
    tracing::info!(
        producer = %view.producer,
        percent,
        left_s,
        batches = view.batches,
        documents = view.documents,
        tokens = view.tokens,
        tokens_per_second,
        pass,
        file,
        doing,
        "progress"
    );
}
