//! Why an instance of a producer can commit no more.

use batchweave_core::guards;
use batchweave_core::ids::{Epoch, ProducerName, Seq, Version};
use batchweave_core::manifest::Manifest;

/// Why an instance can commit no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    Fenced { by: Epoch, instance: String },
    Sealed,
    Finished { tgbs: Seq },
}

/// Whether the instance with this epoch (0: it wants to open one, and began at version `began`) may go
/// on; `by_seal`: what it wants next is stopped by a seal.
pub(crate) fn check(
    manifest: &Manifest,
    name: &ProducerName,
    (epoch, began): (Epoch, Version),
    by_seal: bool,
) -> Result<(), Stop> {
    match manifest.producer(name) {
        Some(p) if epoch == 0 && p.finished => {
            return Err(Stop::Finished { tgbs: p.next_seq });
        }
        // Of two that open the name at a time the newer stays, whoever came first.
        Some(p) if epoch == 0 && p.began > began && !guards::lets_older_instance_fence() => {
            let instance = p.instance.clone();
            return Err(Stop::Fenced {
                by: p.epoch,
                instance,
            });
        }
        Some(p) if epoch != 0 && p.epoch > epoch && !guards::skips_epoch_check() => {
            let instance = p.instance.clone();
            return Err(Stop::Fenced {
                by: p.epoch,
                instance,
            });
        }
        Some(p) if epoch != 0 && p.retired => {
            let instance = "retired by a person".to_owned();
            return Err(Stop::Fenced {
                by: p.epoch,
                instance,
            });
        }
        _ => {}
    }
    if manifest.sealed() && by_seal {
        return Err(Stop::Sealed);
    }
    Ok(())
}
