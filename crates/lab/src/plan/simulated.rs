//! The table of simulated figures: commit latency and requests per entry, by store and number of producers.

use serde::{Deserialize, Serialize};

use batchweave_console::CliError;

const SHIPPED: &str = include_str!("simulated.json");

/// The table as stored in simulated.json.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Table {
    pub(super) source: String,
    pub(super) date: String,
    rows: Vec<Row>,
}

/// Number of requests by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Requests {
    pub(super) put: f64,
    pub(super) get: f64,
    pub(super) list: f64,
    pub(super) delete: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Row {
    profile: String,
    producers: u32,
    /// Entries per second of each producer.
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Number of requests per entry.
    requests: Requests,
}

/// The figures for one number of producers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) requests: Requests,
}

impl Requests {
    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            put: self.put * factor,
            get: self.get * factor,
            list: self.list * factor,
            delete: self.delete * factor,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            put: self.put + other.put,
            get: self.get + other.get,
            list: self.list + other.list,
            delete: self.delete + other.delete,
        }
    }
}

impl Table {
    /// Returns the table of this release.
    pub(super) fn shipped() -> Result<Self, CliError> {
        Self::parse(SHIPPED)
    }

    fn parse(text: &str) -> Result<Self, CliError> {
        let broken =
            |why: String| CliError::Input(format!("the table of simulated figures: {why}"));
        let mut table: Self = serde_json::from_str(text).map_err(|e| broken(e.to_string()))?;
        table.rows.sort_by_key(|row| row.producers);
        Ok(table)
    }

    /// Returns figures for `producers` with `rate` entries per second each, interpolated between the two
    /// nearest rows; notes mark extrapolation.
    pub(super) fn at(
        &self,
        profile: &str,
        producers: u32,
        rate: f64,
    ) -> Result<(Figures, Vec<String>), CliError> {
        let rows = self.nearest_rate(profile, rate);
        let below = rows.iter().rfind(|row| row.producers <= producers);
        let above = rows.iter().find(|row| row.producers >= producers);
        let mut notes = Vec::new();
        let figures = match (below, above) {
            (Some(below), Some(above)) => between(below, above, producers),
            (Some(edge), None) | (None, Some(edge)) => {
                notes.push(format!(
                    "the table has no more than {} producers: latency and requests are those",
                    edge.producers
                ));
                between(edge, edge, producers)
            }
            (None, None) => {
                let why = format!("there are no simulated figures for {profile}");
                return Err(CliError::Input(why));
            }
        };
        let simulated = rows.first().map_or(rate, |row| row.rate);
        if rate > simulated * 2.0 || rate < simulated / 2.0 {
            notes.push(format!(
                "figures are for {simulated} commits per second of each producer, not {rate}"
            ));
        }
        Ok((figures, notes))
    }

    /// Returns the rows with the nearest rate in the table.
    fn nearest_rate(&self, profile: &str, rate: f64) -> Vec<&Row> {
        let of_profile = || self.rows.iter().filter(|row| row.profile == profile);
        let far = |row: &&Row| (row.rate / rate).ln().abs();
        let nearest = of_profile().min_by(|a, b| far(a).total_cmp(&far(b)));
        let same = |row: &&Row| nearest.is_some_and(|n| n.rate.to_bits() == row.rate.to_bits());
        of_profile().filter(same).collect()
    }
}

/// Interpolates linearly over the logarithm of the number of producers.
fn between(below: &Row, above: &Row, producers: u32) -> Figures {
    let log = |n: u32| f64::from(n).ln();
    let span = log(above.producers) - log(below.producers);
    let part = if span > 0.0 {
        (log(producers) - log(below.producers)) / span
    } else {
        0.0
    };
    let mix = |a: f64, b: f64| a + (b - a) * part;
    let (a, b) = (below.requests, above.requests);
    Figures {
        p50_ms: mix(below.p50_ms, above.p50_ms),
        p99_ms: mix(below.p99_ms, above.p99_ms),
        requests: a.times(1.0 - part).plus(b.times(part)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::Profile;
    use super::*;

    #[test]
    fn the_shipped_table_covers_every_store_and_grows_with_the_producers() {
        let table = Table::shipped().unwrap();
        assert!(!table.source.is_empty() && !table.date.is_empty());
        for profile in Profile::ALL {
            let rows = table.nearest_rate(profile.name(), 2.0);
            assert_eq!(
                rows.first().map(|row| row.producers),
                Some(1),
                "{profile:?}"
            );
            assert!(rows.len() > 4, "{profile:?}");
            for row in rows {
                let r = row.requests;
                let sane = row.p50_ms > 0.0 && row.p50_ms <= row.p99_ms && r.put > 0.0;
                assert!(sane && r.get >= 0.0 && r.list >= 0.0, "{row:?}");
            }
        }
    }

    #[test]
    fn between_rows_lines_are_straight_over_the_logarithm() {
        let text = r#"{"source": "s", "date": "d", "rows": [
            {"profile": "x", "producers": 4, "rate": 2.0, "p50_ms": 10, "p99_ms": 20,
             "requests": {"put": 1, "get": 0, "list": 0, "delete": 0}},
            {"profile": "x", "producers": 16, "rate": 2.0, "p50_ms": 30, "p99_ms": 60,
             "requests": {"put": 3, "get": 2, "list": 0, "delete": 0}}]}"#;
        let table = Table::parse(text).unwrap();
        let (middle, notes) = table.at("x", 8, 2.0).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            near(middle.p50_ms, 20.0) && near(middle.p99_ms, 40.0),
            "{middle:?}"
        );
        assert!(near(middle.requests.put, 2.0) && near(middle.requests.get, 1.0));
        assert!(notes.is_empty(), "{notes:?}");
        let (edge, notes) = table.at("x", 64, 9.0).unwrap();
        assert!(near(edge.p50_ms, 30.0));
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(table.at("y", 8, 2.0).is_err());
    }
}
