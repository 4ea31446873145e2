//! The report of `batchweave status --nodes`, from the `/status.json` of a daemon.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::status::Fact;

/// Points of a plot that a rate covers: ten seconds, as the daemon's own rates.
const POINTS: usize = 5;
const FETCHED: &str = "batchweave_consumer_fetched_bytes_total";
const AHEAD: &str = "batchweave_consumer_ahead_bytes";
const ARENA: &str = "batchweave_consumer_arena_bytes";
const LOSS: &str = "batchweave_consumer_loss";

/// The part of a daemon's `/status.json` that is shown. Fields that an older daemon lacks are empty.
#[derive(Debug, Deserialize)]
pub(super) struct NodeStatus {
    program: String,
    name: String,
    ready: bool,
    state: String,
    doing: String,
    #[serde(default)]
    facts: Vec<Fact>,
    /// `None` for a producer.
    ranks: Option<Vec<RankStatus>>,
    #[serde(default)]
    stages: Vec<StageTimes>,
    plots: Vec<Plot>,
    tables: Vec<Table>,
}

#[derive(Debug, Deserialize)]
struct RankStatus {
    rank: String,
    step: u64,
    ahead: u64,
    held: u64,
    #[serde(default)]
    steps_per_second: f64,
    waiting: f64,
    #[serde(default)]
    causes: BTreeMap<String, f64>,
}

#[derive(Debug, Deserialize)]
struct Plot {
    #[serde(default)]
    name: String,
    points: Vec<f64>,
}

#[derive(Debug, Deserialize)]
struct Table {
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// A daemon. Rates and shares are of the last ten seconds.
#[derive(Debug, Default, Serialize)]
pub(super) struct NodeReport {
    pub(super) admin: String,
    /// `None` for a daemon that does not answer.
    pub(super) program: Option<String>,
    /// Name of the producer, or of the consumer's node.
    pub(super) name: String,
    pub(super) ready: bool,
    /// `ready`, `held` or `not ready`.
    pub(super) state: String,
    /// Its own words, or why nothing is known of it.
    pub(super) doing: String,
    pub(super) facts: Vec<Fact>,
    /// `None` where no ranks can be.
    pub(super) ranks: Option<Vec<RankReport>>,
    /// Bytes in the arena that no rank holds.
    pub(super) ahead_bytes: u64,
    pub(super) arena: Arena,
    pub(super) fetched_bytes_per_second: f64,
    /// Mean loss that ranks reported lately, by number of the source; `all`: of all tokens.
    pub(super) losses: BTreeMap<String, f64>,
    pub(super) stages: Vec<StageTimes>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Arena {
    pub(super) held: u64,
    pub(super) used: u64,
    pub(super) total: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct RankReport {
    pub(super) dp_rank: String,
    pub(super) step: u64,
    pub(super) steps_per_second: f64,
    /// Share of time in `next()`.
    pub(super) waiting: f64,
    /// Share of time in `next()` by cause, without zeros.
    pub(super) causes: BTreeMap<String, f64>,
    pub(super) ahead_steps: u64,
    /// Seconds until they are used up at the present rate; `None` while the rank takes none.
    pub(super) ahead_seconds: Option<f64>,
    pub(super) held_frames: u64,
}

/// Durations of a stage; `None` without any slice.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StageTimes {
    pub(super) stage: String,
    pub(super) per_second: f64,
    pub(super) p50_seconds: Option<f64>,
    pub(super) p99_seconds: Option<f64>,
}

impl NodeStatus {
    /// Returns the value of a metric, with this value of its label if it has one; 0 where the daemon shows none.
    fn value(&self, name: &str, label: Option<&str>) -> u64 {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        let found = rows.filter(|row| row.name == name).find(|row| {
            label.is_none_or(|wanted| row.labels.values().any(|value| value == wanted))
        });
        found.map_or(0, |row| row.value.max(0.0) as u64)
    }

    /// Returns the values of a metric by its label.
    fn labelled(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        let own = rows.filter(|row| row.name == name);
        own.filter_map(|row| Some((row.labels.get(label)?.clone(), row.value)))
            .collect()
    }

    /// Returns the rate of a plot over its last points; 0 where the daemon draws none.
    fn rate(&self, name: &str) -> f64 {
        let plot = self.plots.iter().find(|plot| plot.name == name);
        let points = plot.map_or(&[][..], |plot| &plot.points);
        let last = &points[points.len().saturating_sub(POINTS)..];
        last.iter().fold(0.0, |all, point| all + point) / last.len().max(1) as f64
    }
}

impl From<RankStatus> for RankReport {
    fn from(rank: RankStatus) -> Self {
        let rate = rank.steps_per_second;
        Self {
            dp_rank: rank.rank,
            step: rank.step,
            steps_per_second: rate,
            waiting: rank.waiting,
            causes: rank.causes,
            ahead_steps: rank.ahead,
            ahead_seconds: (rate > 0.0).then(|| rank.ahead as f64 / rate),
            held_frames: rank.held,
        }
    }
}

impl NodeReport {
    pub(super) fn new(admin: &str, status: NodeStatus) -> Self {
        let part = |part| status.value(ARENA, Some(part));
        Self {
            admin: admin.to_owned(),
            ahead_bytes: status.value(AHEAD, None),
            arena: Arena {
                held: part("held"),
                used: part("used"),
                total: part("total"),
            },
            fetched_bytes_per_second: status.rate(FETCHED),
            losses: status.labelled(LOSS, "source"),
            program: Some(status.program),
            name: status.name,
            ready: status.ready,
            state: status.state,
            doing: status.doing.trim().to_owned(),
            facts: status.facts,
            ranks: status
                .ranks
                .map(|ranks| ranks.into_iter().map(RankReport::from).collect()),
            stages: status.stages,
        }
    }

    /// Returns the report of a daemon that does not answer.
    pub(super) fn absent(admin: &str, why: String) -> Self {
        Self {
            admin: admin.to_owned(),
            state: "not ready".to_owned(),
            doing: why,
            ..Self::default()
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        self.program.is_none()
    }

    /// Returns the connected ranks.
    pub(super) fn all_ranks(&self) -> &[RankReport] {
        self.ranks.as_deref().unwrap_or_default()
    }
}
