//! The data of the status page, sampled from the registry: rates over the last minutes and current
//! values. Each daemon names the metrics. Memory is bounded: `POINTS` numbers per plot, `ROWS_MAX` rows
//! per table.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::Registry;
use prometheus::proto::MetricFamily;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::families::{ROWS_MAX, labels, sum, value};
use super::ranks::{RankRow, Ranks, RecentRanks};
use super::stages::StageTimes;
use crate::health::{DataSample, Health};
use crate::recent_messages::{self, Message};

const EVERY: Duration = Duration::from_secs(2);
/// Points of a plot: ten minutes.
const POINTS: usize = 300;
/// A rate drawn over time.
#[derive(Debug, Clone, Copy)]
pub struct Plot {
    pub title: &'static str,
    /// The unit of the rate, without "per second": `tokens`, `bytes`. Empty for a number without one.
    pub unit: &'static str,
    /// A counter, summed over its labels.
    pub metric: &'static str,
    /// A gauge to multiply by, for example tokens per slice.
    pub scale: Option<&'static str>,
}

/// A table of current values.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub title: &'static str,
    /// A sentence below the heading.
    pub about: &'static str,
    /// The metrics whose values are the rows, each with the words for it.
    pub metrics: &'static [(&'static str, &'static str)],
}

/// The contents of one daemon's page.
#[derive(Debug, Clone, Copy)]
pub struct StatusPage {
    pub program: &'static str,
    pub version: &'static str,
    pub plots: &'static [Plot],
    /// The table of a consumer's ranks.
    pub ranks: Option<Ranks>,
    pub tables: &'static [Table],
    /// A gauge that is 1 while the daemon waits on purpose.
    pub held: Option<&'static str>,
    /// A metric whose label `training_job` names the served jobs.
    pub jobs: Option<&'static str>,
}

/// The stream, machine and name of a daemon, for the heading of its page.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Identity {
    /// URL of the stream, without credentials.
    pub stream: String,
    pub host: String,
    /// Name of the producer, or of the consumer's node.
    pub name: String,
}

impl Identity {
    /// Names the stream and the daemon, and adds the name of this machine.
    pub fn new(stream: impl Into<String>, name: impl Into<String>) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            stream: stream.into(),
            host: host.trim().to_owned(),
            name: name.into(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Status<'a> {
    program: &'static str,
    version: &'static str,
    #[serde(flatten)]
    identity: &'a Identity,
    /// The jobs that the daemon serves, joined by commas; empty for none.
    job: String,
    ready: bool,
    /// `ready`, `held` or `not ready`.
    state: &'static str,
    doing: String,
    up_seconds: u64,
    facts: Vec<Fact>,
    /// The beginning of a row of the data, where the daemon shows one.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<DataSample>,
    plots: Vec<Drawn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<Vec<RankRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stages: Option<Vec<StageTimes>>,
    tables: Vec<Shown>,
    messages: Vec<Message>,
}

#[derive(Debug, Serialize)]
struct Fact {
    name: String,
    text: String,
}

#[derive(Debug, Serialize)]
struct Drawn {
    title: &'static str,
    /// The metric's name in /metrics.
    name: &'static str,
    unit: &'static str,
    every_seconds: u64,
    points: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Shown {
    title: &'static str,
    about: &'static str,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    /// The metric's name in /metrics.
    name: String,
    /// The words for it.
    text: &'static str,
    help: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

#[derive(Debug, Default, Clone)]
struct History {
    last: Option<f64>,
    points: VecDeque<f64>,
}

/// The page's samples over time.
#[derive(Debug)]
pub(super) struct Sampler {
    page: StatusPage,
    identity: Identity,
    registry: Registry,
    began: Instant,
    plots: Mutex<Vec<History>>,
    recent: Mutex<RecentRanks>,
}

impl Sampler {
    pub(super) fn new(page: StatusPage, identity: Identity, registry: Registry) -> Self {
        let plots = Mutex::new(vec![History::default(); page.plots.len()]);
        Self {
            page,
            identity,
            registry,
            began: Instant::now(),
            plots,
            recent: Mutex::default(),
        }
    }

    /// Takes a sample every `EVERY` until `end`.
    pub(super) async fn run(self: Arc<Self>, end: CancellationToken) {
        let mut tick = tokio::time::interval(EVERY);
        loop {
            tokio::select! {
                biased;
                () = end.cancelled() => return,
                _ = tick.tick() => self.sample(),
            }
        }
    }

    fn sample(&self) {
        let families = self.registry.gather();
        if let Some(ranks) = &self.page.ranks {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.sample(ranks, &families, EVERY);
        }
        let mut plots = self.plots.lock().unwrap_or_else(PoisonError::into_inner);
        for (plot, history) in self.page.plots.iter().zip(plots.iter_mut()) {
            let scale = plot.scale.map_or(1.0, |gauge| sum(&families, gauge));
            let now = sum(&families, plot.metric) * scale;
            if let Some(last) = history.last {
                // While the scale is still unknown, nothing is drawn.
                let grown = if last > 0.0 || plot.scale.is_none() {
                    now - last
                } else {
                    0.0
                };
                history
                    .points
                    .push_back(grown.max(0.0) / EVERY.as_secs_f64());
                if history.points.len() > POINTS {
                    history.points.pop_front();
                }
            }
            history.last = Some(now);
        }
    }

    /// Returns the content of `/status.json`.
    pub(super) fn status(&self, health: &Health) -> Status<'_> {
        let (ready, doing) = health.get();
        let families = self.registry.gather();
        let plots = self
            .plots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let drawn = |(plot, history): (&Plot, History)| Drawn {
            title: plot.title,
            name: plot.metric,
            unit: plot.unit,
            every_seconds: EVERY.as_secs(),
            points: history.points.into(),
        };
        let of_ranks = self.page.ranks.as_ref().map(|ranks| {
            let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            (recent.rows(ranks, &families), recent.stages(ranks))
        });
        let (ranks, stages) = of_ranks.unzip();
        let held = self
            .page
            .held
            .is_some_and(|gauge| sum(&families, gauge) > 0.0);
        let facts = health.facts().into_iter();
        Status {
            program: self.page.program,
            version: self.page.version,
            identity: &self.identity,
            job: self
                .page
                .jobs
                .map_or_else(String::new, |metric| jobs(&families, metric)),
            ready,
            state: match (ready, held) {
                (false, _) => "not ready",
                (true, true) => "held",
                (true, false) => "ready",
            },
            doing,
            up_seconds: self.began.elapsed().as_secs(),
            facts: facts.map(|(name, text)| Fact { name, text }).collect(),
            sample: health.sample(),
            ranks,
            stages,
            plots: self.page.plots.iter().zip(plots).map(drawn).collect(),
            tables: self
                .page
                .tables
                .iter()
                .map(|table| shown(table, &families))
                .collect(),
            messages: recent_messages::messages(),
        }
    }
}

fn shown(table: &Table, families: &[MetricFamily]) -> Shown {
    let wanted = table.metrics.iter().filter_map(|(name, text)| {
        let family = families.iter().find(|f| f.name() == *name)?;
        Some((family, *text))
    });
    let rows = wanted.flat_map(|(family, text)| {
        family.get_metric().iter().map(move |metric| Row {
            name: family.name().to_owned(),
            text,
            help: family.help().to_owned(),
            labels: labels(metric),
            value: value(family.get_field_type(), metric),
        })
    });
    Shown {
        title: table.title,
        about: table.about,
        rows: rows.take(ROWS_MAX).collect(),
    }
}

/// Returns the jobs that a metric's labels name, joined by commas.
fn jobs(families: &[MetricFamily], name: &str) -> String {
    let family = families.iter().filter(|family| family.name() == name);
    let metrics = family.flat_map(MetricFamily::get_metric);
    let mut named: Vec<String> = metrics
        .filter_map(|metric| labels(metric).remove("training_job"))
        .take(ROWS_MAX)
        .collect();
    named.sort();
    named.join(", ")
}

#[cfg(test)]
mod tests;
