//! The state behind the page: the answers read last, and since when. Reading pauses while nobody looks.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_daemon::figures::period;
use batchweave_daemon::web::{self, Answer};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Addresses;
use super::daemons::{self, DaemonStatus, DaemonView};
use super::sentence::{self, State};
use crate::status::{JobView, ProducerView, StreamView, Watched};

/// Reading pauses this long after the last request; hidden tabs of browsers ask once a minute.
const LOOKED_AT: Duration = Duration::from_secs(150);
/// Points of a plot.
const POINTS: usize = 360;
/// Reads that the speed of a producer covers.
const PASSES: usize = 24;
/// Closed jobs that the page still names.
const CLOSED_MAX: usize = 16;
/// A read of the store that takes longer is reported.
const SLOW: Duration = Duration::from_secs(10);

/// The state behind the page.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) every: Duration,
    /// When a browser asked last.
    asked: watch::Sender<Instant>,
    read: Mutex<Read>,
}

/// The last answers, and when they were read.
#[derive(Debug)]
pub(super) struct Read {
    stream: StreamView,
    at: Instant,
    /// When the present read of the store began.
    trying_since: Option<Instant>,
    /// Why the last read of the store failed.
    error: Option<String>,
    pub(super) daemons: Vec<DaemonView>,
    pub(super) rate: VecDeque<Option<f64>>,
    lead: VecDeque<Option<f64>>,
    /// The passes of each producer at the last reads.
    passes: VecDeque<(Instant, BTreeMap<String, f64>)>,
}

/// The body of `/stream.json`.
#[derive(Debug, Serialize)]
pub(super) struct Body<'a> {
    version: &'static str,
    state: State,
    /// Age of what was read from the store.
    read_seconds_ago: u64,
    every_seconds: f64,
    stream: &'a StreamView,
    producers: Vec<ProducerRow<'a>>,
    jobs: &'a [JobView],
    daemons: &'a [DaemonView],
    plots: [Plot<'a>; 2],
}

/// A producer, with what its daemon says if that is named.
#[derive(Debug, Serialize)]
struct ProducerRow<'a> {
    #[serde(flatten)]
    producer: &'a ProducerView,
    /// Time left in words.
    left: Option<String>,
    /// The activity of its daemon, and its state.
    doing: Option<&'a str>,
    daemon_state: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Plot<'a> {
    title: &'static str,
    unit: &'static str,
    every_seconds: f64,
    points: &'a VecDeque<Option<f64>>,
}

impl Page {
    pub(super) fn new(stream: StreamView, every: Duration) -> Self {
        let mut read = Read {
            stream: stream.clone(),
            at: Instant::now(),
            trying_since: None,
            error: None,
            daemons: Vec::new(),
            rate: VecDeque::new(),
            lead: VecDeque::new(),
            passes: VecDeque::new(),
        };
        read.note(stream);
        Self {
            every,
            asked: watch::Sender::new(Instant::now()),
            read: Mutex::new(read),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the URL of the stream.
    pub(super) fn root(&self) -> String {
        self.lock().stream.root.clone()
    }

    /// Returns the answer to a browser, from memory.
    pub(super) fn answer(&self) -> Answer {
        self.asked.send_replace(Instant::now());
        web::json(&self.lock().body(self.every))
    }

    /// Reads the stream and its daemons at intervals, while somebody looks.
    pub(super) async fn follow(&self, stream: Watched, daemons: &Addresses) -> Infallible {
        tokio::select! {
            biased;
            never = self.follow_stream(stream) => never,
            never = self.follow_daemons(daemons) => never,
        }
    }

    /// Reads the stream at intervals, while somebody looks.
    pub(super) async fn follow_stream(&self, mut stream: Watched) -> Infallible {
        let mut tick = ticks(self.every);
        loop {
            tick.tick().await;
            if self.looked_at().await {
                self.lock().forget();
            }
            self.lock().trying_since = Some(Instant::now());
            let read = stream.view().await;
            let mut now = self.lock();
            now.trying_since = None;
            match read {
                Ok(view) => now.note(view),
                Err(why) => now.fail(&why),
            }
        }
    }

    /// Reads the status of these daemons at intervals, while somebody looks.
    pub(super) async fn follow_daemons(&self, addresses: &Addresses) -> Infallible {
        let mut tick = ticks(self.every);
        loop {
            tick.tick().await;
            self.looked_at().await;
            let addresses = addresses
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            let read = daemons::read_all(&addresses).await.into_iter();
            let mut now = self.lock();
            let root = now.stream.root.clone();
            now.daemons = read.map(|daemon| daemon.check_stream(&root)).collect();
        }
    }

    /// Waits until somebody looks, and returns whether nobody did before.
    async fn looked_at(&self) -> bool {
        let mut asked = self.asked.subscribe();
        let paused = asked.borrow().elapsed() >= LOOKED_AT;
        // The sender lives as long as this.
        let _ = asked.wait_for(|at| at.elapsed() < LOOKED_AT).await;
        paused
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

impl Read {
    pub(super) fn note(&mut self, mut stream: StreamView) {
        (self.at, self.error) = (Instant::now(), None);
        push(&mut self.rate, POINTS, stream.tokens_per_second);
        push(
            &mut self.lead,
            POINTS,
            stream.lead_steps.map(|steps| steps as f64),
        );
        let passes = stream
            .producers
            .iter()
            .filter_map(|p| Some((p.name.clone(), p.passes?)));
        push(&mut self.passes, PASSES, (self.at, passes.collect()));
        stream.jobs.extend(self.closed(&stream));
        self.stream = stream;
    }

    pub(super) fn fail(&mut self, why: &CliError) {
        self.error = Some(format!("{why}; retrying"));
        push(&mut self.rate, POINTS, None);
        push(&mut self.lead, POINTS, None);
    }

    /// Begins the plots anew after a pause.
    fn forget(&mut self) {
        self.rate.clear();
        self.lead.clear();
        self.passes.clear();
    }

    /// Returns the jobs that were on the page before and are no longer open.
    fn closed(&self, now: &StreamView) -> Vec<JobView> {
        let gone = |job: &&JobView| !now.jobs.iter().any(|open| open.job == job.job);
        let last = self.stream.jobs.iter().rev().filter(gone).take(CLOSED_MAX);
        let mut closed: Vec<JobView> = last.cloned().map(JobView::closed).collect();
        closed.reverse();
        closed
    }

    pub(super) fn body(&self, every: Duration) -> Body<'_> {
        let trying = self.trying_since.map(|since| since.elapsed());
        let slow = trying
            .filter(|time| *time > SLOW)
            .map(|time| format!("no answer for {}", period(time.as_secs_f64())));
        let failing = self.error.as_deref().or(slow.as_deref());
        let plot = |title, unit, points| Plot {
            title,
            unit,
            every_seconds: every.as_secs_f64(),
            points,
        };
        Body {
            version: env!("CARGO_PKG_VERSION"),
            state: sentence::state(&self.stream, failing, &self.daemons),
            read_seconds_ago: self.at.elapsed().as_secs(),
            every_seconds: every.as_secs_f64(),
            stream: &self.stream,
            producers: self
                .stream
                .producers
                .iter()
                .map(|p| self.producer(p))
                .collect(),
            jobs: &self.stream.jobs,
            daemons: &self.daemons,
            plots: [
                plot("Committed", "tokens", &self.rate),
                plot("Ahead of the slowest job", "steps", &self.lead),
            ],
        }
    }

    fn producer<'a>(&'a self, producer: &'a ProducerView) -> ProducerRow<'a> {
        let mut all = self.daemons.iter().filter_map(DaemonView::status);
        let daemon = all.find(|daemon| daemon.producer() == Some(&producer.name));
        let told = daemon.and_then(progress);
        ProducerRow {
            producer,
            left: told.or_else(|| {
                self.seconds_left(producer)
                    .map(|s| format!("{} to the end of the pass", period(s)))
            }),
            doing: daemon.map(|daemon| daemon.doing.as_str()),
            daemon_state: daemon.map(|daemon| daemon.state.as_str()),
        }
    }

    /// Returns the time to the end of the pass at the speed of the last reads.
    fn seconds_left(&self, producer: &ProducerView) -> Option<f64> {
        let now = producer.passes?;
        let mut samples = self.passes.iter();
        let (at, then) = samples.find_map(|(at, all)| Some((at, *all.get(&producer.name)?)))?;
        let (grown, time) = (now - then, self.at.duration_since(*at).as_secs_f64());
        (grown > 0.0 && time > 0.0).then(|| (1.0 - now.fract()) * time / grown)
    }
}

/// Returns a daemon's own words for its progress.
fn progress(daemon: &DaemonStatus) -> Option<String> {
    let fact = daemon.facts.iter().find(|fact| fact.name == "progress");
    fact.map(|fact| fact.text.clone())
}

fn push<T>(points: &mut VecDeque<T>, most: usize, point: T) {
    points.push_back(point);
    if points.len() > most {
        points.pop_front();
    }
}
