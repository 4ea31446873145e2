//! The faults that ranks receive in place of frames that cannot be read.

use batchweave_core::ids::Step;
use batchweave_store::ErrorKind;
use batchweave_wire::{ErrorName, Fault};

use super::retry::ReadError;
use super::{FetchEvents, READS_MAX};
use crate::stream_head::{Head, below_watermark};

/// Attempts to read the log to its head before a missing object is reported without it.
const REFRESHES_MAX: u32 = 12;

/// Returns the fault of a corrupt object. `agree`: two reads returned the same bytes.
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

/// Returns the head by which an unreadable object is explained. The log says whether a missing object was
/// reclaimed, so for these it is read to its head first.
pub(super) async fn head_after<E: FetchEvents>(events: &E, why: &ReadError) -> Head {
    match why {
        ReadError::Store(why) if why.kind == ErrorKind::NotFound => {
            for _ in 0..REFRESHES_MAX {
                if let Some(head) = events.refresh_head().await {
                    return head;
                }
            }
        }
        _ => {}
    }
    events.head()
}

/// Returns the fault of a frame of `step` whose object `key` can't be read. `others`: further steps that
/// have slices in the object.
pub(super) fn unreadable<E: FetchEvents>(
    events: &E,
    head: &Head,
    why: &ReadError,
    key: &str,
    step: Step,
    others: &[Step],
) -> Fault {
    let fault = match why {
        ReadError::Arena(_) => Fault::new(ErrorName::Internal, why.to_string()),
        ReadError::Store(why) => match why.kind {
            ErrorKind::NotFound if step < head.watermark => below_watermark(step, head.watermark),
            ErrorKind::NotFound => {
                let mut steps = events.steps_in(key);
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

/// Returns the fault of a deleted object: the steps that lost slices, and those that did not. Of steps behind the known
/// ones it is not known.
fn missing(head: &Head, (first, last): (Step, Step), detail: &str) -> Fault {
    let from = head.watermark;
    let mut others = String::new();
    if first > from {
        others = format!(", steps {from} to {} are not in it", first - 1);
    }
    if last + 1 < head.next_step {
        others.push_str(", later ones may be");
    }
    let message = format!(
        "the log names an object that is not in the store ({detail}): slices of steps {first} to {last} are gone{others}"
    );
    let remedy = format!(
        "restore the object from a backup or a bucket version, or pass over the steps in a new attempt after \
         `batchweave quarantine {first}..{last} --reason TEXT`; `batchweave verify` lists all that is missing"
    );
    Fault::new(ErrorName::MissingData, message).remedy(remedy)
}
