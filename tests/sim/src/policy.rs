//! The commit policies by name: the one of the producers, and those compared with it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use batchweave_core::commit_policy::{Action, Dac, DacOptions, Event, Naive, Plain, Policy, Queue};
use serde::{Deserialize, Serialize};

use crate::draw::Draw;
use crate::interval::Interval;

/// The name of a commit policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// Announce, combine and lead, as producers do.
    Dac,
    /// Commit immediately, and back off after a lost race.
    Plain,
    /// Commit immediately, and retry without a pause.
    Naive,
    /// As `Dac`, but a leader does not say that it leads.
    #[serde(rename = "dac-unled")]
    Unled,
    /// Commit in an interval that each producer adapts by itself.
    Interval,
}

impl PolicyKind {
    /// Draws the policy of a producer in a faulty world: mostly the one of the producers.
    pub fn draw(draw: &mut Draw) -> Self {
        match draw.range(0..10) {
            0 | 1 => Self::Plain,
            2 => Self::Naive,
            _ => Self::Dac,
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dac => "dac",
            Self::Plain => "plain",
            Self::Naive => "naive",
            Self::Unled => "dac-unled",
            Self::Interval => "interval",
        })
    }
}

impl FromStr for PolicyKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "dac" => Ok(Self::Dac),
            // Plain is the policy that backs off.
            "plain" | "backoff" => Ok(Self::Plain),
            "naive" => Ok(Self::Naive),
            "dac-unled" => Ok(Self::Unled),
            "interval" => Ok(Self::Interval),
            _ => Err(format!(
                "unknown policy {name:?}: dac, dac-unled, interval, plain, backoff, naive"
            )),
        }
    }
}

/// One of the policies.
#[derive(Debug)]
pub(crate) enum AnyPolicy {
    Dac(Box<Dac>),
    Plain(Plain),
    Naive(Naive),
    Unled(Box<Dac>),
    Interval(Box<Interval>),
}

impl AnyPolicy {
    pub(crate) fn new(kind: PolicyKind, seed: u64) -> Self {
        let dac = || {
            let target = Duration::ZERO;
            Box::new(Dac::new(DacOptions { target, seed }))
        };
        match kind {
            PolicyKind::Dac => Self::Dac(dac()),
            PolicyKind::Unled => Self::Unled(dac()),
            PolicyKind::Interval => Self::Interval(Box::new(Interval::new(seed))),
            PolicyKind::Plain => {
                Self::Plain(Plain::new(Duration::ZERO, Duration::from_millis(30), seed))
            }
            PolicyKind::Naive => Self::Naive(Naive),
        }
    }
}

impl Policy for AnyPolicy {
    fn step(&mut self, now: Duration, queue: Queue, event: Event) -> Action {
        match self {
            Self::Dac(policy) => policy.step(now, queue, event),
            Self::Plain(policy) => policy.step(now, queue, event),
            Self::Naive(policy) => policy.step(now, queue, event),
            Self::Interval(policy) => policy.step(now, queue, event),
            Self::Unled(policy) => match policy.step(now, queue, event) {
                Action::Put {
                    combine, put_ms, ..
                } => Action::Put {
                    leads: false,
                    combine,
                    put_ms,
                },
                other => other,
            },
        }
    }
}
