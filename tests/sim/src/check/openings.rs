//! Checks that a producer whose announced opening failed, because another instance has the epoch, opens
//! again as soon as it has seen that: it announces another opening, or puts its own record.

use std::collections::BTreeMap;

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

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    let opened: Vec<Vec<(ProducerName, Epoch, String)>> = (0..)
        .zip(&log.records)
        .map(|(version, body)| openings(Record::from_json(body, version).ok()))
        .collect();
    let landed: BTreeMap<_, _> = evidence
        .landed
        .iter()
        .filter_map(|l| Some((version(&l.key)?, l.at)))
        .collect();
    let there = |version, at| landed.get(&version).is_some_and(|landed| *landed <= at);
    let is_head = |version: Version, at| {
        !there(version, at) && version.checked_sub(1).is_none_or(|last| there(last, at))
    };
    let mut announced: BTreeMap<u32, Opening> = BTreeMap::new();
    for event in &evidence.events {
        let sent = matches!(event.what, What::Sent { .. });
        if event.op == Op::Create && sent {
            announced.remove(&event.actor);
            if let Some((producer, epoch, Announced::Opened)) = keys::parse_intent(&event.key) {
                let opening = Opening {
                    producer,
                    epoch,
                    key: stem(&event.key).into_owned(),
                    dead: false,
                    looks: 0,
                };
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
            let all = opened.get(version as usize).into_iter().flatten();
            let mut taken =
                all.filter(|(name, epoch, _)| (name, epoch) == (&own.producer, &own.epoch));
            own.dead |= taken.any(|(.., key)| *key != own.key);
        } else if event.what == What::Answered(Answer::Missing)
            && own.dead
            && is_head(version, event.at)
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
