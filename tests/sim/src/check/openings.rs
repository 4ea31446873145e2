//! Checks that a producer whose announced opening failed, because another instance has the epoch, opens
//! again as soon as it has seen that: it announces another opening, or puts its own record.

use std::collections::BTreeMap;
use std::time::Duration;

use batchweave_core::ids::{Epoch, ProducerName, Version};
use batchweave_core::intent::{Announced, stem};
use batchweave_core::keys;
use batchweave_core::manifest::{Entry, Record};
use batchweave_store::Op;

use super::oracle::Log;
use super::writers::version;
use crate::evidence::{Evidence, Violation};
use crate::trace::{Answer, What};

/// The limit of polls that reach the head, from the discovery that an announced opening is dead to
/// the next announcement or record. A producer that is far behind reads up to the head first, and
/// answers to earlier requests may still arrive.
const LOOKS_MAX: u32 = 3;

/// An announced opening of one process.
struct Opening {
    producer: ProducerName,
    epoch: Epoch,
    key: String,
    /// Its owner has read that another instance has the epoch.
    dead: bool,
    looks: u32,
}

/// The records that the log received, with the openings in each and the time of its creation.
struct Records {
    openings: Vec<Vec<(ProducerName, Epoch, String)>>,
    landed: BTreeMap<Version, Duration>,
}

impl Records {
    fn of_the_run(evidence: &Evidence, log: &Log) -> Self {
        let openings = (0..)
            .zip(&log.records)
            .map(|(version, body)| openings(Record::from_json(body, version).ok()))
            .collect();
        let landed = evidence
            .landed
            .iter()
            .filter_map(|l| Some((version(&l.key)?, l.at)))
            .collect();
        Self { openings, landed }
    }

    /// Returns true if this version is the first without a record at that time.
    fn is_head(&self, version: Version, at: Duration) -> bool {
        let there = |version| {
            self.landed
                .get(&version)
                .is_some_and(|landed| *landed <= at)
        };
        !there(version) && version.checked_sub(1).is_none_or(there)
    }

    /// Returns true if the record opens the announced term for another instance.
    fn takes(&self, version: Version, own: &Opening) -> bool {
        let all = self.openings.get(version as usize).into_iter().flatten();
        let mut taken = all.filter(|(name, epoch, _)| (name, epoch) == (&own.producer, &own.epoch));
        taken.any(|(.., key)| *key != own.key)
    }
}

/// Returns the opening that the intent of this key announces.
fn announced_by(intent: &str) -> Option<Opening> {
    let (producer, epoch, Announced::Opened) = keys::parse_intent(intent)? else {
        return None;
    };
    Some(Opening {
        producer,
        epoch,
        key: stem(intent).into_owned(),
        dead: false,
        looks: 0,
    })
}

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    let records = Records::of_the_run(evidence, log);
    let mut announced: BTreeMap<u32, Opening> = BTreeMap::new();
    for event in &evidence.events {
        let sent = matches!(event.what, What::Sent { .. });
        if event.op == Op::Create && sent {
            announced.remove(&event.actor);
            if let Some(opening) = announced_by(&event.key) {
                announced.insert(event.actor, opening);
            }
            continue;
        }
        let (Some(version), Some(own), Op::Get) = (
            version(&event.key),
            announced.get_mut(&event.actor),
            event.op,
        ) else {
            continue;
        };
        if event.what == What::Answered(Answer::Found) {
            own.dead |= records.takes(version, own);
        } else if event.what == What::Answered(Answer::Missing)
            && own.dead
            && records.is_head(version, event.at)
        {
            own.looks += 1;
            if own.looks > LOOKS_MAX {
                let text = format!(
                    "{} keeps polling, though term {} of {} is another instance's",
                    evidence.actor(event.actor),
                    own.epoch,
                    own.producer
                );
                found.push(Violation::new("announced-again", None, text).by(event.actor, event.at));
                announced.remove(&event.actor);
            }
        }
    }
}

/// Returns name, epoch and the key of the announcement for each opening in a record.
fn openings(record: Option<Record>) -> Vec<(ProducerName, Epoch, String)> {
    let entries = record.into_iter().flat_map(|record| record.entries);
    let openings = entries.filter_map(|entry| match entry {
        Entry::Opened(e) => {
            let key = keys::intent_opened(&e.producer, e.epoch, e.nonce);
            Some((e.producer, e.epoch, key))
        }
        _ => None,
    });
    openings.collect()
}
