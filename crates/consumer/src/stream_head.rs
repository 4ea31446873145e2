//! The stream as ranks need to know it, taken from the folded log.

use std::collections::BTreeMap;

use batchweave_core::ids::{JobName, ProducerName, Step, Version};
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::{JobState, QuarantineState};
use batchweave_core::stream::StreamConfig;
use batchweave_wire::{ErrorName, Fault};

/// The known state of the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The oldest step whose data is not reclaimed.
    pub(crate) watermark: Step,
    /// The first step that is not committed.
    pub(crate) next_step: Step,
    /// The step before which the stream ends, once that is decided.
    pub(crate) end: Option<Step>,
    pub(crate) jobs: BTreeMap<JobName, JobState>,
    pub(crate) quarantine: Vec<QuarantineState>,
    /// Under `lanes`: the producer whose TGB comes next, and the version since which it is awaited.
    pub(crate) awaited: Option<(ProducerName, Version)>,
}

impl Head {
    /// Takes the head from the folded log.
    pub(crate) fn from_manifest(manifest: &Manifest) -> Self {
        let awaited = manifest.awaited();
        Self {
            jobs: manifest.jobs().clone(),
            quarantine: manifest.quarantines().to_vec(),
            awaited: awaited.map(|awaited| (awaited.lane.clone(), awaited.since)),
            watermark: manifest.watermark(),
            next_step: manifest.next_step(),
            end: manifest.end(),
        }
    }
}

/// Returns the refusal of a step below the watermark of `stream`; in a fork it may be a step of the parent.
pub(crate) fn below_first(stream: &StreamConfig, step: Step, watermark: Step) -> Fault {
    let fault = below_watermark(step, watermark);
    match stream.parent_with(step) {
        None => fault,
        Some(parent) => Fault {
            message: format!("step {step} is not in this stream: {parent}"),
            ..fault
        },
    }
}

/// Returns the refusal of a step below the watermark.
pub(crate) fn below_watermark(step: Step, watermark: Step) -> Fault {
    let message = format!("step {step} is below the watermark {watermark}: its data is reclaimed");
    let remedy = format!("start at step {watermark} or later");
    Fault::new(ErrorName::StepReclaimed, message)
        .at_step(step)
        .remedy(remedy)
}
