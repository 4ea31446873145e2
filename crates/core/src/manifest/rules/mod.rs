//! The rules of entries in a state. Validation changes nothing.

mod admin;
mod batch;
mod stage;

use super::entry::{Entry, Finished, Opened, Retired};
use super::state::{Manifest, ProducerState};
use super::void::Void;

use crate::cursor;
use crate::guards;
use crate::ids::{Epoch, ProducerName};
use crate::limits::{
    ENTRY_BYTES_MAX, NUMBER_MAX, REASON_BYTES_MAX, VALUE_LEVELS_MAX, VERSION_LAST,
};

/// The effect of a valid entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// The entry changes the state.
    Applies,
    /// The entry was applied before (same request or attempt id) and is harmless.
    Repeat,
}

impl Manifest {
    /// Validates one entry in this state. Writers validate before they put; the fold validates again.
    pub fn validate(&self, entry: &Entry) -> Result<Validity, Void> {
        if let Some(id) = entry.request()
            && self.requests.contains(&id)
        {
            return Ok(Validity::Repeat);
        }
        match entry {
            _ if self.next_version >= NUMBER_MAX => Err(Void::VersionsUsedUp),
            Entry::Opened(_) | Entry::Batch(_) if self.next_version >= VERSION_LAST => {
                Err(Void::VersionsUsedUp)
            }
            Entry::Opened(e) => self.validate_opened(e),
            Entry::Batch(e) => batch::validate(self, e),
            Entry::Finished(e) => self.validate_finished(e),
            Entry::Retired(e) => self.validate_retired(e),
            Entry::JobOpened(e) => admin::job_opened(self, e),
            Entry::JobClosed(e) => admin::job_closed(self, e),
            Entry::AttemptOpened(e) => return admin::attempt_opened(self, e),
            Entry::Mixture(e) => admin::mixture(self, e),
            Entry::Stage(e) => stage::validate(self, e),
            Entry::Quarantined(e) => admin::quarantined(self, e),
            Entry::QuarantineLifted(e) => admin::quarantine_lifted(self, e),
            Entry::Watermark(e) => admin::watermark(self, e),
            Entry::Sealed(e) => text(&e.reason).and_then(|()| self.unsealed()),
            Entry::Unsealed(_) if !self.sealed => Err(Void::NotSealed),
            Entry::Unsealed(e) => text(&e.reason),
        }
        .map(|()| Validity::Applies)
    }

    /// Validates several entries like one record: each in the state after those before it. Costs as much as
    /// folding them, independently of the rest of the state.
    pub fn validate_all(&self, entries: &[Entry]) -> Vec<Result<Validity, Void>> {
        let mut state = self.clone();
        let judged = |entry: &Entry| {
            let verdict = size(entry).and_then(|()| state.validate(entry));
            if verdict == Ok(Validity::Applies) {
                state.apply(entry, state.next_version);
            }
            verdict
        };
        entries.iter().map(judged).collect()
    }

    fn unsealed(&self) -> Result<(), Void> {
        if self.sealed {
            Err(Void::Sealed)
        } else {
            Ok(())
        }
    }

    fn validate_opened(&self, e: &Opened) -> Result<(), Void> {
        text(&e.instance)?;
        number(e.began)?;
        if !self.lanes.allows(&e.producer) {
            return Err(Void::NotNamed(e.producer.clone()));
        }
        let current = self.producers.get(&e.producer).map_or(0, |p| p.epoch);
        if self.producers.get(&e.producer).is_some_and(|p| p.finished) {
            return Err(Void::Finished(e.producer.clone()));
        }
        if e.epoch != current + 1 || e.epoch >= NUMBER_MAX {
            let producer = e.producer.clone();
            return Err(Void::WrongEpoch {
                producer,
                current,
                found: e.epoch,
            });
        }
        Ok(())
    }

    /// Returns the producer's state if `epoch` may still write.
    pub(super) fn writer(&self, name: &ProducerName, epoch: Epoch) -> Result<&ProducerState, Void> {
        let state = self
            .producers
            .get(name)
            .ok_or_else(|| Void::NotOpened(name.clone()))?;
        if state.epoch != epoch && !guards::skips_epoch_check() {
            let producer = name.clone();
            return Err(Void::WrongEpoch {
                producer,
                current: state.epoch,
                found: epoch,
            });
        }
        if state.retired {
            return Err(Void::Retired {
                producer: name.clone(),
                epoch,
            });
        }
        if state.finished {
            return Err(Void::Finished(name.clone()));
        }
        Ok(state)
    }

    fn validate_finished(&self, e: &Finished) -> Result<(), Void> {
        let state = self.writer(&e.producer, e.epoch)?;
        if state.next_seq != e.final_seq && !guards::skips_sequence_check() {
            let producer = e.producer.clone();
            return Err(Void::WrongSeq {
                producer,
                next: state.next_seq,
                found: e.final_seq,
            });
        }
        Ok(())
    }

    fn validate_retired(&self, e: &Retired) -> Result<(), Void> {
        text(&e.reason)?;
        self.writer(&e.producer, e.epoch).map(|_| ())
    }
}

/// Checks the bound of texts for people.
pub(super) fn text(text: &str) -> Result<(), Void> {
    if text.len() > REASON_BYTES_MAX {
        return Err(Void::TextTooLong {
            limit: REASON_BYTES_MAX,
        });
    }
    Ok(())
}

/// Checks that a number is exact for JSON readers and that sums can't overflow.
pub(super) fn number(value: u64) -> Result<(), Void> {
    if value >= NUMBER_MAX {
        return Err(Void::NumberTooLarge { limit: NUMBER_MAX });
    }
    Ok(())
}

/// Checks the nesting of a value: a record that its readers can't parse would stop all of them.
pub(super) fn levels(value: &serde_json::Value) -> Result<(), Void> {
    if cursor::levels(value) > VALUE_LEVELS_MAX {
        let limit = VALUE_LEVELS_MAX;
        return Err(Void::TooDeep { limit });
    }
    Ok(())
}

/// Checks the size of an entry. Needed only when its record is larger than the bound of an entry.
pub(crate) fn size(entry: &Entry) -> Result<(), Void> {
    let bytes = entry.json_len();
    if bytes > ENTRY_BYTES_MAX {
        Err(Void::TooLarge { bytes })
    } else {
        Ok(())
    }
}
