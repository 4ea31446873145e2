//! The commit policies by name: the one of the producers, and those compared with it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use batchweave_core::commit_policy::{Action, Dac, DacOptions, Event, Naive, Plain, Policy, Queue};
use serde::{Deserialize, Serialize};

use crate::draw::Draw;

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
            _ => Err(format!(
                "unknown policy {name:?}: dac, plain, backoff, naive"
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
}

impl AnyPolicy {
    pub(crate) fn new(kind: PolicyKind, seed: u64) -> Self {
        match kind {
            PolicyKind::Dac => Self::Dac(Box::new(Dac::new(DacOptions {
                target: Duration::ZERO,
                seed,
            }))),
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
        }
    }
}
