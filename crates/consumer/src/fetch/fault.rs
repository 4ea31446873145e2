//! What ranks get in place of frames that can't be had.

use batchweave_core::ids::Step;
use batchweave_store::ErrorKind;
use batchweave_wire::{ErrorName, Fault};

use super::READS_MAX;
use super::retry::ReadError;
use crate::job::attempts::below_watermark;
use crate::node::{Head, Hub};

/// How often it is tried to read the log before a missing object gets its name without it.
const LOOKS: u32 = 12;

/// Why a rank gets no frame: an object is wrong, whichever way it was read. `agree`: two reads brought the
/// same.
pub(super) fn corrupt(why: &str, agree: bool, key: &str, step: Step) -> Fault {
    let message = if agree {
        format!("{why}, also when fetched again")
    } else {
        format!("{why}; fetched {READS_MAX} times, each time wrong in another way")
    };
    Fault::new(ErrorName::CorruptData, message)
        .at_step(step)
        .at_key(key)
}

/// What is known of the stream when an object can't be read: of a missing one the log says whether it was
/// reclaimed, so the log is read on before anybody is told.
pub(super) async fn head_for(hub: &Hub, why: &ReadError) -> Head {
    match why {
        ReadError::Store(why) if why.kind == ErrorKind::NotFound => {
            for _ in 0..LOOKS {
                if let Some(head) = hub.look_again().await {
                    return head;
                }
            }
        }
        _ => {}
    }
    hub.lock().head.clone()
}

/// Why a rank gets no frame: the object `key` can't be read, as far as `step` is concerned. `others`:
/// further steps that have slices in it.
pub(super) fn unreadable(
    hub: &Hub,
    head: &Head,
    why: &ReadError,
    (key, step): (&str, Step),
    others: &[Step],
) -> Fault {
    let fault = match why {
        ReadError::Arena(_) => Fault::new(ErrorName::Internal, why.to_string()),
        ReadError::Store(why) => match why.kind {
            ErrorKind::NotFound if step < head.watermark => below_watermark(step, head.watermark),
            ErrorKind::NotFound => {
                let mut steps: Vec<Step> = { hub.lock().engine.steps_in(key).collect() };
                steps.extend_from_slice(others);
                let first = steps.iter().copied().fold(step, Step::min);
                let last = steps.iter().copied().fold(step, Step::max);
                missing(head, (first, last), &why.detail)
            }
            ErrorKind::Range => {
                let message = format!("the object is shorter than the log says: {}", why.detail);
                Fault::new(ErrorName::CorruptData, message)
            }
            _ => Fault::new(ErrorName::Internal, why.to_string()),
        },
    };
    tracing::error!(step, key, %fault, "data can't be read");
    fault.at_step(step).at_key(key)
}

/// An object that somebody deleted: what is gone with it and what remains.
fn missing(head: &Head, (first, last): (Step, Step), detail: &str) -> Fault {
    let from = head.watermark;
    let remains = match (first > from, last + 1 < head.next_step) {
        (true, true) => format!(
            "{from} to {} and {} to {}",
            first - 1,
            last + 1,
            head.next_step - 1
        ),
        (true, false) => format!("{from} to {}", first - 1),
        (false, true) => format!("{} to {}", last + 1, head.next_step - 1),
        (false, false) => "none".to_owned(),
    };
    let message = format!(
        "the log names an object that is not in the store ({detail}): slices of steps {first} to {last} are \
         gone, steps {remains} are not in it"
    );
    let remedy = format!(
        "restore the object from a backup or a bucket version, or pass over the steps in a new attempt after \
         `batchweave quarantine {first}..{last} --reason ...`; `batchweave verify` lists all that is missing"
    );
    Fault::new(ErrorName::MissingData, message).remedy(remedy)
}
