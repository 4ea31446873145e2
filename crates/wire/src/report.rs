//! `report`: the states of received steps, as the rank's trainer states them, and the losses of trained ones.

use std::collections::BTreeSet;

use crate::bytes::{Builder, Fields};
use crate::values::{StepValues, VALUES_MAX};
use crate::{REASON_BYTES_MAX, STATES_MAX, WireError};

/// Most bytes of a message: each range has 24 bytes and a reason.
const _: () = assert!(
    crate::HEADER_BYTES + 16 + STATES_MAX * (24 + REASON_BYTES_MAX) <= crate::MESSAGE_BYTES_MAX
);
/// Steps are below this number.
const STEPS: u64 = 1 << 53;

/// The state of consecutive steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepStates {
    pub from: u64,
    /// The step after the last one.
    pub to: u64,
    /// The reason why the steps were left out on purpose; `None` for trained steps.
    pub left_out: Option<String>,
}

/// The states of steps that the rank received.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// First step not received in full, as in a release.
    pub next_step: u64,
    /// Ranges in any order.
    pub states: Vec<StepStates>,
    /// Values of steps that `states` has as trained, each once, in any order.
    pub values: Vec<StepValues>,
}

impl StepStates {
    /// Returns whether a peer may send it: steps in order, and a reason of one short line.
    fn check(&self) -> Result<(), String> {
        if self.from >= self.to || self.to >= STEPS {
            return Err(format!(
                "steps {} to {} are not a range",
                self.from, self.to
            ));
        }
        let is_reason =
            |text: &String| text.len() <= REASON_BYTES_MAX && !text.chars().any(char::is_control);
        match &self.left_out {
            Some(text) if text.is_empty() || !is_reason(text) => Err(format!(
                "the reason {text:?}: one line of 1 to {REASON_BYTES_MAX} bytes is allowed"
            )),
            _ => Ok(()),
        }
    }
}

impl Report {
    pub(crate) fn encode(&self, kind: u16) -> Result<Vec<u8>, WireError> {
        let count = self.states.len();
        if !(1..=STATES_MAX).contains(&count) {
            return Err(WireError::body("report", miscounted(count)));
        }
        let mut message = Builder::new("report", kind).u64(self.next_step);
        self.check().map_err(|why| WireError::body("report", why))?;
        message = message.u32(count as u32).u32(self.values.len() as u32);
        for states in &self.states {
            states
                .check()
                .map_err(|why| WireError::body("report", why))?;
            let reason = states.left_out.as_deref().unwrap_or_default();
            message = message.u64(states.from).u64(states.to);
            message = message.u32(reason.len() as u32).u32(0);
            message = message.raw(reason.as_bytes());
        }
        for values in &self.values {
            message = values.encode(message)?;
        }
        message.finish()
    }

    /// Checks that values are of trained steps, each once.
    fn check(&self) -> Result<(), String> {
        if self.values.len() > VALUES_MAX {
            return Err(format!(
                "{} values, at most {VALUES_MAX} are allowed",
                self.values.len()
            ));
        }
        let mut seen = BTreeSet::new();
        for values in &self.values {
            let step = values.step;
            let holds =
                |one: &StepStates| one.left_out.is_none() && (one.from..one.to).contains(&step);
            if !self.states.iter().any(holds) {
                return Err(format!(
                    "values of step {step}, which the message does not have as trained"
                ));
            }
            if !seen.insert(step) {
                return Err(format!("values of step {step} twice"));
            }
        }
        Ok(())
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut f = Fields::new("report", body);
        let next_step = f.u64()?;
        let count = f.count("ranges", STATES_MAX)?;
        let valued = f.count("values", VALUES_MAX)?;
        if count == 0 {
            return Err(f.error(miscounted(count)));
        }
        let mut states = Vec::with_capacity(count);
        for _ in 0..count {
            let (from, to) = (f.u64()?, f.u64()?);
            let bytes = f.count("bytes of a reason", REASON_BYTES_MAX)?;
            f.reserved()?;
            let reason = f.text(bytes)?;
            let left_out = (!reason.is_empty()).then(|| reason.to_owned());
            let one = StepStates { from, to, left_out };
            one.check().map_err(|why| f.error(why))?;
            states.push(one);
        }
        let mut values = Vec::with_capacity(valued);
        for _ in 0..valued {
            values.push(StepValues::decode(&mut f)?);
        }
        let report = Self {
            next_step,
            states,
            values,
        };
        report.check().map_err(|why| f.error(why))?;
        f.end()?;
        Ok(report)
    }
}

fn miscounted(count: usize) -> String {
    format!("{count} ranges; 1 to {STATES_MAX} are allowed")
}
