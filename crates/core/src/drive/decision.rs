//! A change that is due, with the state of the log by which it was decided.

use super::why::Why;
use crate::guards;
use crate::ids::AttemptId;
use crate::manifest::Manifest;

/// A change that is due. It is void once another mixture or attempt came first: its steps are then of an older mixture, or
/// abandoned.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub why: Why,
    /// The newest mixture when it was decided.
    pub mixture: u64,
    /// The newest attempt of the job then.
    pub attempt: AttemptId,
}

impl Decision {
    /// Returns whether mixture and attempt are still those of the decision, and the job is open.
    pub fn is_valid(&self, m: &Manifest) -> bool {
        if guards::keeps_overtaken_decision() {
            return true;
        }
        let job = m.jobs().get(&self.why.job);
        let job = job.filter(|job| job.opened == self.why.opened);
        let newest = job.and_then(|job| job.attempts.last());
        m.mixture().id == self.mixture && newest.map(|newest| newest.id) == Some(self.attempt)
    }
}
