//! The first batch of each producer with a new mixture.

use std::collections::BTreeMap;

use batchweave_console::CliError;
use batchweave_core::ids::{ProducerName, Seq, Step};
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::ProducerState;

/// Where a person wants a change to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Begin {
    /// Each producer still makes this number of batches with the old weights.
    After(Seq),
    /// With this step of a stream of lanes.
    AtStep(Step),
}

/// The same by the state of the log.
#[derive(Debug)]
pub(crate) enum Begins {
    After(Seq),
    AtStep {
        step: Step,
        first: BTreeMap<ProducerName, Seq>,
        /// The first step that nobody has committed a batch for.
        free: Step,
    },
}

impl Begin {
    pub(crate) fn by(self, m: &Manifest) -> Result<Begins, CliError> {
        let step = match self {
            Self::After(after) => return Ok(Begins::After(after)),
            Self::AtStep(step) => step,
        };
        let lanes = m.stream().producers.len();
        let waiting = m.stream().producers.iter().map(|name| m.waiting_of(name));
        let free = m.next_step() + waiting.max().unwrap_or(0) * lanes as Step;
        match m.first_seqs_from(step) {
            Some(first) => Ok(Begins::AtStep { step, first, free }),
            None if m.first_seqs_from(m.next_step()).is_none() => Err(CliError::Usage(
                "--from-step is for streams of order lanes: in this one a producer learns the steps of its batches \
                 when they are committed; use --after"
                    .to_owned(),
            )),
            None if step < m.next_step() => Err(too_early(step, free)),
            None => Err(CliError::Usage(format!(
                "step {step} is too far ahead of the stream's {} steps",
                m.next_step()
            ))),
        }
    }
}

/// Returns the refusal of a step for which batches are committed.
fn too_early(step: Step, free: Step) -> CliError {
    CliError::Refused(format!(
        "batches for step {step} or later are committed already; the first free step is at most {free}, and grows while \
         producers run"
    ))
}

impl Begins {
    /// Returns the first batch of a producer that begins after a number of batches, behind its `committed` ones.
    pub(crate) fn after(&self, committed: Seq) -> Seq {
        match self {
            Self::After(after) => committed.saturating_add(*after),
            Self::AtStep { .. } => committed,
        }
    }

    /// Refuses a step at which or after which some lane has committed a batch, also one that has finished: it would stay
    /// as it is, among batches of the change.
    pub(crate) fn refuse_taken(&self, m: &Manifest) -> Result<(), CliError> {
        let Self::AtStep { step, first, free } = self else {
            return Ok(());
        };
        let committed = |name| m.producer(name).map_or(0, |p| p.next_seq);
        if first.iter().any(|(name, from)| *from < committed(name)) {
            return Err(too_early(*step, *free));
        }
        Ok(())
    }

    /// Returns the step at which the change begins, and the first batch of lane `name` from there on.
    pub(crate) fn at_step(&self, name: &ProducerName) -> Option<(Step, Seq)> {
        match self {
            Self::After(_) => None,
            Self::AtStep { step, first, .. } => {
                Some((*step, first.get(name).copied().unwrap_or_default()))
            }
        }
    }

    /// Returns the first batch of `name` with the new mixture.
    pub(super) fn of(&self, name: &ProducerName, state: &ProducerState) -> Result<Seq, CliError> {
        let last = state.mixtures.iter().next_back().map_or(0, |(seq, _)| *seq);
        match self {
            Self::After(after) => Ok(state.next_seq.saturating_add(*after).max(last)),
            Self::AtStep { step, first, free } => {
                let from = first.get(name).copied().unwrap_or_default();
                if from < state.next_seq {
                    return Err(too_early(*step, *free));
                }
                if from < last {
                    return Err(CliError::Refused(format!(
                        "producer {name} changes already with its batch {last}, which comes after step {step}; choose a \
                         later step"
                    )));
                }
                Ok(from)
            }
        }
    }
}
