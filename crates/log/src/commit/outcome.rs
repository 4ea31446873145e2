//! Why an instance of a producer can commit no more.

use batchweave_core::guards;
use batchweave_core::ids::{Epoch, ProducerName, Seq, Version};
use batchweave_core::manifest::Manifest;

/// How far an instance is in opening its producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its opening is not committed yet.
    Opening {
        /// The head of the log when this instance began.
        began: Version,
        /// The epoch in its announced opening.
        announced: Option<Epoch>,
    },
    /// It has opened the producer in this epoch.
    Open(Epoch),
}

/// Why an instance can commit no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Another instance opened the producer in the epoch `by`.
    Fenced {
        by: Epoch,
        instance: String,
    },
    Sealed,
    /// The next item was made by another mixture or stage than the one in force.
    Changed,
    Finished {
        tgbs: Seq,
    },
}

/// Returns why an instance in `phase` can commit no more, if so. `sealable`: a seal stops the entry
/// that it commits next.
pub(crate) fn stopped(
    manifest: &Manifest,
    name: &ProducerName,
    phase: Phase,
    sealable: bool,
) -> Option<Stop> {
    let state = manifest.producer(name);
    let fenced = |by, instance: &str| {
        let instance = instance.to_owned();
        Some(Stop::Fenced { by, instance })
    };
    match (phase, state) {
        (Phase::Opening { .. }, Some(p)) if p.finished => {
            return Some(Stop::Finished { tgbs: p.next_seq });
        }
        // Of two instances that open the same name at once the newer one stays, whichever record
        // came first.
        (Phase::Opening { began, .. }, Some(p))
            if p.began > began && !guards::lets_older_instance_fence() =>
        {
            return fenced(p.epoch, &p.instance);
        }
        (Phase::Open(epoch), Some(p)) if p.epoch > epoch && !guards::skips_epoch_check() => {
            return fenced(p.epoch, &p.instance);
        }
        (Phase::Open(_), Some(p)) if p.retired => {
            return fenced(p.epoch, "retired by a person");
        }
        _ => {}
    }
    (manifest.sealed() && sealable).then_some(Stop::Sealed)
}
