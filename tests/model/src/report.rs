//! One exploration of one configuration, as text and JSON.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::checker::{self, Found};
use crate::config::Config;
use crate::guard::Guard;
use crate::world::World;

/// An exploration and its result.
#[derive(Debug, Clone)]
pub struct Exploration {
    pub config: Config,
    /// The guard that was removed.
    pub without: Option<Guard>,
    pub found: Found,
    /// The number of different logs, and so of calls of the product's fold.
    pub logs: usize,
    /// The number of different records.
    pub records: usize,
    /// The time that the exploration elapsed.
    pub elapsed: Duration,
}

/// Explores a configuration and measures the time.
pub fn explore(config: Config, without: Option<Guard>, states_max: u64) -> Exploration {
    let began = Instant::now();
    let mut world = World::new(config, without);
    let found = checker::explore(&mut world, states_max);
    let (logs, records) = world.sizes();
    Exploration {
        config,
        without,
        found,
        logs,
        records,
        elapsed: began.elapsed(),
    }
}

impl Exploration {
    /// Returns the number of broken properties: 0 or 1, as the search ends at the first.
    pub fn violations(&self) -> usize {
        usize::from(self.found.counterexample.is_some())
    }

    /// Returns one line of the table.
    pub fn line(&self) -> String {
        let Found {
            states,
            transitions,
            depth,
            complete,
            cut,
            ..
        } = self.found;
        let cut = if cut { " (cut off)" } else { "" };
        let (name, logs, seconds) = (self.config.name, self.logs, self.elapsed.as_secs_f64());
        format!(
            "{name:<10}{states:>12}{transitions:>13}{depth:>7}{complete:>10}{logs:>9}\
             {seconds:>9.1}{:>12}{cut}",
            self.violations()
        )
    }

    /// Returns the counterexample, step by step.
    pub fn counterexample_text(&self) -> String {
        let mut out = String::new();
        if let Some(counterexample) = &self.found.counterexample {
            let without = self.without.map_or_else(String::new, |guard| {
                format!(" without the guard {}", guard.name())
            });
            let _ = writeln!(out, "configuration {}{without}:", self.config.name);
            for (number, step) in (1..).zip(&counterexample.trace) {
                let _ = writeln!(out, "{number:>4}  {step}");
            }
            let _ = writeln!(out, "broken: {}", counterexample.broken);
        }
        out
    }

    /// Returns the result as JSON.
    pub fn json(&self) -> Value {
        let counterexample = self.found.counterexample.as_ref().map(|c| {
            json!({
                "property": format!("{:?}", c.broken.property),
                "broken": c.broken.to_string(),
                "trace": c.trace,
            })
        });
        json!({
            "config": self.config.name,
            "without": self.without.map(Guard::name),
            "states": self.found.states,
            "transitions": self.found.transitions,
            "depth": self.found.depth,
            "complete": self.found.complete,
            "cut": self.found.cut,
            "logs": self.logs,
            "records": self.records,
            "seconds": self.elapsed.as_secs_f64(),
            "violations": self.violations(),
            "counterexample": counterexample,
        })
    }
}

/// Returns the header of the table.
pub fn table_header() -> String {
    format!(
        "{:<10}{:>12}{:>13}{:>7}{:>10}{:>9}{:>9}{:>12}",
        "config", "states", "transitions", "depth", "complete", "logs", "seconds", "violations"
    )
}
