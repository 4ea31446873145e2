//! Checks each process's requests alone, whatever their outcomes.

use std::collections::{BTreeMap, BTreeSet};

use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_store::Op;

use crate::evidence::{Evidence, Violation};
use crate::trace::{Answer, What};

/// The part of the log that one process knows.
#[derive(Debug, Default)]
struct Knowledge {
    /// All versions below this one are known.
    upto: Version,
    beyond: BTreeSet<Version>,
    sent: BTreeMap<Version, u64>,
}

impl Knowledge {
    fn learn(&mut self, version: Version) {
        self.beyond.insert(version);
        while self.beyond.remove(&self.upto) {
            self.upto += 1;
        }
    }

    /// A snapshot contains all records below its version.
    fn learn_all(&mut self, upto: Version) {
        self.upto = self.upto.max(upto + 1);
        self.beyond = self.beyond.split_off(&self.upto);
        while self.beyond.remove(&self.upto) {
            self.upto += 1;
        }
    }
}

pub(super) fn version(key: &str) -> Option<Version> {
    key.strip_prefix(keys::LOG)?
        .strip_suffix(".json")?
        .parse()
        .ok()
}

pub(super) fn check(evidence: &Evidence, found: &mut Vec<Violation>) {
    let mut known: BTreeMap<u32, Knowledge> = BTreeMap::new();
    for event in &evidence.events {
        let knowledge = known.entry(event.actor).or_default();
        if let Some(snapshot) = keys::snapshot_version(&event.key)
            && event.op == Op::Get
            && event.what == What::Answered(Answer::Found)
        {
            knowledge.learn_all(snapshot);
        }
        let Some(version) = version(&event.key) else {
            continue;
        };
        match (event.op, &event.what) {
            (Op::Get, What::Answered(Answer::Found))
            | (Op::Create, What::Answered(Answer::Created)) => knowledge.learn(version),
            (Op::Create, What::Sent { print, .. }) => {
                if knowledge.upto < version {
                    let text = format!("put without having read {}", knowledge.upto);
                    let v = Violation::new("read-before-put", Some(version), text);
                    found.push(v.by(event.actor, event.at));
                }
                let first = *knowledge.sent.entry(version).or_insert(*print);
                if first != *print {
                    let text = "other bytes than before went to the same version";
                    let v = Violation::new("same-bytes", Some(version), text);
                    found.push(v.by(event.actor, event.at));
                }
            }
            (Op::Delete | Op::Upload, What::Sent { .. }) => {
                let v = Violation::new("log-untouched", Some(version), "not a create-only put");
                found.push(v.by(event.actor, event.at));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knowledge_has_no_holes() {
        let mut k = Knowledge::default();
        k.learn(1);
        assert_eq!(k.upto, 0);
        k.learn(0);
        assert_eq!(k.upto, 2);
        k.learn(5);
        k.learn(7);
        k.learn_all(4);
        assert_eq!(k.upto, 6);
        k.learn(6);
        assert_eq!(k.upto, 8);
    }
}
