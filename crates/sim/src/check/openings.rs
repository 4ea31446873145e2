//! A producer whose announced opening came to nothing, since somebody else has its epoch, says so
//! again as soon as it has seen that: it announces another one, or puts its own record.

use std::collections::BTreeMap;
use std::time::Duration;

use batchweave_core::ids::{Epoch, ProducerName};
use batchweave_core::intent::{Announced, stem};
use batchweave_core::keys;
use batchweave_core::manifest::{Entry, Record};
use batchweave_store::Op;

use super::Violation;
use super::oracle::Log;
use super::writers::version;
use crate::trace::{Answer, What};
use crate::world::Evidence;

/// Looks at the log, from learning that an announced opening is dead to the next announcement or
/// record. What was asked for before it learned may still come in.
const LOOKS_MAX: u32 = 3;

/// An announced opening of one process.
struct Opening {
    producer: ProducerName,
    epoch: Epoch,
    key: String,
    /// Its owner has read that another instance has the epoch.
    dead: bool,
    looks: u32,
    looked: Duration,
}

pub(super) fn check(evidence: &Evidence, log: &Log, found: &mut Vec<Violation>) {
    let opened: Vec<Vec<(ProducerName, Epoch, String)>> = (0..)
        .zip(&log.records)
        .map(|(version, body)| openings(Record::from_json(body, version).ok()))
        .collect();
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
                    looked: event.at,
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
        if sent && own.dead && own.looked != event.at {
            (own.looks, own.looked) = (own.looks + 1, event.at);
            if own.looks > LOOKS_MAX {
                let text = format!(
                    "{} looks on, though epoch {} of {} is somebody else's",
                    evidence.actor(event.actor),
                    own.epoch,
                    own.producer
                );
                found.push(Violation::new("announced-again", None, text).by(event.actor, event.at));
                announced.remove(&event.actor);
            }
        } else if event.what == What::Answered(Answer::Found) {
            let all = opened.get(version as usize).into_iter().flatten();
            let mut taken =
                all.filter(|(name, epoch, _)| (name, epoch) == (&own.producer, &own.epoch));
            own.dead |= taken.any(|(.., key)| *key != own.key);
            own.looked = event.at;
        }
    }
}

/// Name, epoch and the key of the announcement for each opening in a record.
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
