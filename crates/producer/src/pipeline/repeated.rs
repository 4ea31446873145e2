//! Batches of a fork's parent, which the fork's producer makes once more: its cursor stands before them. They must be the
//! same ones, since what follows them begins in the middle of what they were made of.

use std::collections::VecDeque;

use batchweave_core::ids::{ProducerName, Seq};
use batchweave_core::tgb::Digest;
use batchweave_log::{CommitItem, Committer};

use crate::error::RunError;

/// The batches of the parent that are not made yet.
#[derive(Debug)]
pub(crate) struct Repeated {
    producer: ProducerName,
    next: Seq,
    digests: VecDeque<Digest>,
}

impl Repeated {
    pub(crate) fn new(producer: &Committer) -> Self {
        Self {
            producer: producer.name().clone(),
            next: producer.made_from(),
            digests: producer.repeated().into(),
        }
    }

    /// Compares a batch of the parent, and drops it; returns any other one.
    pub(super) fn take(&mut self, item: CommitItem) -> Result<Option<CommitItem>, RunError> {
        if self.digests.is_empty() {
            return Ok(Some(item));
        }
        for tgb in &item.tgbs {
            if self.digests.pop_front() != Some(tgb.digest) {
                return Err(RunError::OtherThanParent {
                    producer: self.producer.to_string(),
                    batch: self.next,
                });
            }
            self.next += 1;
        }
        if self.digests.is_empty() {
            tracing::info!(
                producer = %self.producer,
                next = self.next,
                "all batches of the parent were made once more, with its digests"
            );
        }
        Ok(None)
    }

    /// Fails when the input is over before all batches of the parent were made.
    pub(super) fn check_end(&self) -> Result<(), RunError> {
        if self.digests.is_empty() {
            return Ok(());
        }
        Err(RunError::LessThanParent {
            producer: self.producer.to_string(),
            batch: self.next,
            left: self.digests.len(),
        })
    }
}
