//! The reaction of a rank to an error of its daemon: an end, a retry, or a violation.

use batchweave_wire::{ErrorName, Fault};

use super::attempt_status::{AttemptStatus, attempt_status};
use super::rank::{AGAIN, ENDED, End, Over, Rank};

impl Rank {
    pub(super) fn wrong(&self, check: &'static str, text: String) -> Over {
        let text = format!("{}: {text}", self.actor.name);
        self.shared.found(check, self.actor.id, text.clone());
        Over::Ends(End::Failed(text))
    }

    /// Returns true if the rank has received all steps of a stream that has ended for good.
    pub(super) fn is_past_the_end(&self) -> bool {
        let ends = self.shared.end();
        ends.is_some_and(|end| self.position.next >= end)
    }

    /// Classifies an error of the daemon, and reports one that no daemon may send to this rank.
    pub(super) async fn fault(&self, fault: Fault) -> Over {
        let text = fault.to_string();
        self.shared
            .store
            .note(&self.actor, format!("is told: {text}"));
        match fault.known_name() {
            Some(ErrorName::AttemptSuperseded) => Over::Ends(End::Superseded),
            Some(ErrorName::JobClosed | ErrorName::JobNotOpen) => Over::Ends(End::Closed),
            Some(ErrorName::AttemptNotOpened) => Over::Ends(End::Failed(text)),
            // Steps that were quarantined in advance may be beyond the end of the stream.
            Some(ErrorName::StreamEnded) if self.is_past_the_end() => Over::Ends(End::Done),
            Some(ErrorName::StreamEnded | ErrorName::DuplicateCoordinate) => Over::Again(ENDED),
            Some(ErrorName::StoreUnavailable) => Over::Again(AGAIN),
            Some(ErrorName::Internal) if text.contains("the daemon stops") => Over::Again(AGAIN),
            Some(ErrorName::LogUnreadable) if self.shared.plan.stops() => Over::Again(ENDED),
            Some(ErrorName::StepReclaimed) => self.reclaimed(&text).await,
            Some(ErrorName::MissingData) => self.missing(text).await,
            _ => self.wrong("daemon-error", text),
        }
    }

    /// Returns the status of this rank's attempt by the newest log.
    async fn attempt_status(&self) -> AttemptStatus {
        attempt_status(
            &self.shared,
            &self.actor,
            &self.store,
            (&self.job.name, &self.wanted),
        )
        .await
    }

    /// Classifies a reclaimed step. It is right for an attempt that is not open yet or not the
    /// newest, and for a job without protection from reclamation.
    async fn reclaimed(&self, text: &str) -> Over {
        match self.attempt_status().await {
            AttemptStatus::Newest { watermark } => {
                if self.job.plan.holds && self.position.attempt.is_some() {
                    return self.wrong("rights", text.to_owned());
                }
                Over::Ends(End::Refused(watermark))
            }
            AttemptStatus::NotOpen { watermark } => Over::Ends(End::Refused(watermark)),
            AttemptStatus::Superseded => Over::Ends(End::Superseded),
            AttemptStatus::Closed => Over::Ends(End::Closed),
        }
    }

    /// Classifies missing data, which is right only for an attempt that has lost its right to the
    /// data.
    async fn missing(&self, text: String) -> Over {
        match self.attempt_status().await {
            AttemptStatus::Newest { watermark } if self.position.next < watermark => {
                self.reclaimed(&text).await
            }
            AttemptStatus::Superseded => Over::Ends(End::Superseded),
            AttemptStatus::Closed => Over::Ends(End::Closed),
            _ => self.wrong("missing", text),
        }
    }
}
