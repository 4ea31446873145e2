//! The reaction of a rank to an error of its daemon: an end, a retry, or a violation.

use batchweave_wire::{ErrorName, Fault};

use super::attempt_status::{AttemptStatus, attempt_status};
use super::rank::{AGAIN, ENDED, End, Rank, SessionEnd};

impl Rank {
    pub(super) fn wrong(&self, check: &'static str, text: String) -> SessionEnd {
        let text = format!("{}: {text}", self.actor.name);
        self.shared.found(check, self.actor.id, text.clone());
        SessionEnd::Ends(End::Failed(text))
    }

    /// Returns true if the rank has received all steps of a stream that has ended for good.
    pub(super) fn is_past_the_end(&self) -> bool {
        let ends = self.shared.end();
        ends.is_some_and(|end| self.position.next >= end)
    }

    /// Classifies an error of the daemon, and reports one that no daemon may send to this rank.
    pub(super) async fn fault(&self, fault: Fault) -> SessionEnd {
        let text = fault.to_string();
        self.shared
            .store
            .note(&self.actor, format!("is told: {text}"));
        match fault.known_name() {
            Some(ErrorName::AttemptSuperseded) => SessionEnd::Ends(End::Superseded),
            Some(ErrorName::JobClosed | ErrorName::JobNotOpen) => SessionEnd::Ends(End::Closed),
            Some(ErrorName::AttemptNotOpened) => SessionEnd::Ends(End::Failed(text)),
            // Steps that were quarantined in advance may be beyond the end of the stream.
            Some(ErrorName::StreamEnded) if self.is_past_the_end() => SessionEnd::Ends(End::Done),
            Some(ErrorName::StreamEnded | ErrorName::DuplicateCoordinate) => {
                SessionEnd::Again(ENDED)
            }
            Some(ErrorName::StoreUnavailable) => SessionEnd::Again(AGAIN),
            Some(ErrorName::Internal) if text.contains("the daemon stops") => {
                SessionEnd::Again(AGAIN)
            }
            Some(ErrorName::LogUnreadable) if self.shared.plan.stops() => SessionEnd::Again(ENDED),
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
            &self.job.name,
            &self.wanted,
        )
        .await
    }

    /// Classifies a reclaimed step. It is right for an attempt that is not open yet or not the
    /// newest, and for a job without protection from reclamation.
    async fn reclaimed(&self, text: &str) -> SessionEnd {
        match self.attempt_status().await {
            AttemptStatus::Newest { watermark } => {
                if self.job.plan.holds && self.position.attempt.is_some() {
                    return self.wrong("rights", text.to_owned());
                }
                SessionEnd::Ends(End::Refused(watermark))
            }
            AttemptStatus::NotOpen { watermark } => SessionEnd::Ends(End::Refused(watermark)),
            AttemptStatus::Superseded => SessionEnd::Ends(End::Superseded),
            AttemptStatus::Closed => SessionEnd::Ends(End::Closed),
        }
    }

    /// Classifies missing data, which is right only for an attempt that has lost its right to the
    /// data.
    async fn missing(&self, text: String) -> SessionEnd {
        match self.attempt_status().await {
            AttemptStatus::Newest { watermark } if self.position.next < watermark => {
                self.reclaimed(&text).await
            }
            AttemptStatus::Superseded => SessionEnd::Ends(End::Superseded),
            AttemptStatus::Closed => SessionEnd::Ends(End::Closed),
            _ => self.wrong("missing", text),
        }
    }
}
