//! The check of a stored change: from the log alone, it finds a driver that used abandoned steps or steps of an older
//! mixture, counted a change twice, or computed something else.

use super::history::MixtureHistory;
use super::why::{Why, are_equal};
use super::window::{has_enough, is_in, newest_reason, next_change};
use crate::ids::Step;
use crate::order::Weight;
use crate::proof::{AttemptRecord, JobRecord, Leg, LineageError};

/// The weights of an entry are whole billionths.
const ROUNDED: f64 = 1e-9;

/// A fault of a change that a driver made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WhyFault {
    #[error("no mixture {0} with a reason is in the log: a person set it, or the configuration")]
    NoReason(u64),
    #[error("its reason is of a later release ({0}); upgrade this program")]
    Foreign(String),
    #[error(
        "its steps {from} to {to} of attempt {attempt} of job {job} were not in the newest lineage when it was set"
    )]
    NotInLineage {
        job: String,
        attempt: u64,
        from: Step,
        to: Step,
    },
    /// The attempts do not say who trained its steps.
    #[error("{0}")]
    Lineage(#[from] LineageError),
    #[error("it uses step {from}, and {first} is the first one of the job behind its warm-up")]
    TooEarly { from: Step, first: Step },
    #[error(
        "it says that {found} pairs of step and coordinate were read, and its lineage has {expected}"
    )]
    WrongPairs { found: u64, expected: u64 },
    #[error("it uses step {from}, but steps before {whole} are of mixtures before {mixture}")]
    OlderMixture {
        from: Step,
        whole: Step,
        mixture: u64,
    },
    #[error(
        "it goes on from mixture {found:?}, but the newest change with its last step in the lineage is {expected:?}"
    )]
    WrongChain {
        found: Option<u64>,
        expected: Option<u64>,
    },
    #[error("it is change {found} of its chain, but {expected} is next")]
    WrongNumber { found: u64, expected: u64 },
    #[error("it uses step {from}, which mixture {after} counted already")]
    CountedTwice { from: Step, after: u64 },
    #[error("it uses {found} steps, and its settings say {every}")]
    WrongSteps { found: u64, every: u64 },
    #[error("it has values of {counted} of {read} pairs of step and coordinate, which are too few")]
    TooFew { counted: u64, read: u64 },
    #[error("source {0} does not go on with the reward of the change before")]
    WrongReward(String),
    #[error("{0}")]
    Computed(String),
    #[error("the entry has another weight of source {0} than its reason")]
    WrongWeight(String),
}

impl MixtureHistory {
    /// Checks the change that set mixture `id`, and returns its reason.
    pub fn check(&self, id: u64, record: &JobRecord) -> Result<Why, WhyFault> {
        let mixture = self.mixture(id).ok_or(WhyFault::NoReason(id))?;
        let why = mixture.why.as_ref().ok_or(WhyFault::NoReason(id))?;
        let why = Why::read(why).map_err(WhyFault::Foreign)?;
        let legs = record.lineage_of(self.newest_at(id, record))?;
        if !is_in(&why, record, &legs) {
            return Err(WhyFault::NotInLineage {
                job: why.job.to_string(),
                attempt: why.attempt,
                from: why.from,
                to: why.to,
            });
        }
        self.check_steps(id, &why)?;
        check_pairs(&why, record, &legs)?;
        let after = newest_reason(self, id, record, &legs);
        let after = after.map_err(|error| WhyFault::Foreign(error.to_string()))?;
        check_chain(&why, after.as_ref())?;
        why.recompute().map_err(WhyFault::Computed)?;
        let names = mixture.weights.keys();
        let mut others = names.filter(|name| why.sources.iter().all(|one| one.name != **name));
        if let Some(other) = others.next() {
            return Err(WhyFault::WrongWeight(other.clone()));
        }
        for one in &why.sources {
            let weight = mixture.weights.get(&one.name);
            let is_own = |weight: &Weight| (weight.number() - one.share).abs() <= ROUNDED;
            if !weight.is_some_and(is_own) {
                return Err(WhyFault::WrongWeight(one.name.clone()));
            }
        }
        Ok(why)
    }

    /// Returns the lineage of the job's newest attempt when mixture `id` was set.
    pub fn lineage_at(&self, id: u64, record: &JobRecord) -> Vec<Leg> {
        let newest = self.newest_at(id, record);
        record.lineage_of(newest).unwrap_or_default()
    }

    fn newest_at<'a>(&self, id: u64, record: &'a JobRecord) -> Option<&'a AttemptRecord> {
        let version = self.mixture(id).map_or(0, |mixture| mixture.version);
        let mut attempts = record.attempts.iter().rev();
        attempts.find(|attempt| attempt.state.opened < version)
    }

    fn check_steps(&self, id: u64, why: &Why) -> Result<(), WhyFault> {
        let (from, before) = (why.from, id.saturating_sub(1));
        let whole = self.mixture(id).map_or(0, |mixture| mixture.whole_before);
        if from < whole {
            return Err(WhyFault::OlderMixture {
                from,
                whole,
                mixture: before,
            });
        }
        let (found, every) = (why.to.saturating_sub(from), why.settings.every);
        if found != every {
            return Err(WhyFault::WrongSteps { found, every });
        }
        let (counted, read) = (why.counted, why.read);
        if !has_enough(counted, read) {
            return Err(WhyFault::TooFew { counted, read });
        }
        Ok(())
    }
}

/// Checks the first step, and the number of pairs of step and coordinate: quarantined steps are passed over.
fn check_pairs(why: &Why, record: &JobRecord, legs: &[Leg]) -> Result<(), WhyFault> {
    let start = legs.first().map_or(0, |leg| leg.from);
    let first = start.saturating_add(why.settings.warm_up);
    if why.from < first {
        let from = why.from;
        return Err(WhyFault::TooEarly { from, first });
    }
    let mut expected = 0;
    for leg in legs {
        let own = why.from.max(leg.from)..leg.to.map_or(why.to, |to| to.min(why.to));
        let Some(attempt) = record.attempt(leg.attempt) else {
            continue;
        };
        let skipped = attempt.skipped(own.clone()).into_iter();
        let skipped: u64 = skipped.map(|(first, end)| end - first).sum();
        let steps = own.end.saturating_sub(own.start).saturating_sub(skipped);
        expected += steps * u64::from(attempt.state.dp_size);
    }
    let found = why.read;
    if found != expected {
        return Err(WhyFault::WrongPairs { found, expected });
    }
    Ok(())
}

fn check_chain(why: &Why, before: Option<&(u64, Why)>) -> Result<(), WhyFault> {
    let expected = before.map(|(id, _)| *id);
    if why.after != expected {
        return Err(WhyFault::WrongChain {
            found: why.after,
            expected,
        });
    }
    let (found, expected) = (why.change, next_change(before));
    if found != expected {
        return Err(WhyFault::WrongNumber { found, expected });
    }
    let Some((after, before)) = before else {
        return Ok(());
    };
    if why.from < before.to {
        return Err(WhyFault::CountedTwice {
            from: why.from,
            after: *after,
        });
    }
    for one in &why.sources {
        let known = before.sources.iter().find(|old| old.name == one.name);
        let reward = known.and_then(|old| old.reward);
        if !are_equal(one.reward_before, reward) {
            return Err(WhyFault::WrongReward(one.name.clone()));
        }
    }
    Ok(())
}
