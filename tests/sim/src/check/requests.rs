//! Checks for requests that are never allowed: a delete below `data/`, except by a reclaimer, and a
//! LIST of the log. A request counts when it is sent, whatever its outcome.

use batchweave_core::keys;
use batchweave_store::Op;

use crate::evidence::Violation;
use crate::trace::{Event, What};

/// Checks the requests of a run; `reclaims` returns true for reclaimers.
pub(crate) fn check(events: &[Event], reclaims: impl Fn(u32) -> bool, found: &mut Vec<Violation>) {
    for event in events {
        if !matches!(event.what, What::Sent { .. }) {
            continue;
        }
        let key = event.key.as_ref();
        let broken = match event.op {
            // Cleaning up after a failure would delete data that was committed after all.
            Op::Delete if key.starts_with(keys::DATA) && !reclaims(event.actor) => "data-deleted",
            // A prefix above it would list the log as well.
            Op::List if key.starts_with(keys::LOG) || keys::LOG.starts_with(key) => "log-listed",
            _ => continue,
        };
        let text = format!("{} {key:?} was sent", event.op.name());
        found.push(Violation::new(broken, None, text).by(event.actor, event.at));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn found(op: Op, key: &str, what: What) -> Vec<&'static str> {
        let event = Event {
            at: Duration::ZERO,
            actor: 2,
            request: 1,
            op,
            key: key.into(),
            what,
        };
        let mut found = Vec::new();
        check(&[event], |actor| actor == 3, &mut found);
        found.into_iter().map(|v| v.check).collect()
    }

    #[test]
    fn only_reclaimers_delete_data() {
        let sent = What::Sent { print: 0, bytes: 0 };
        let key = "data/p0/1-00/0-0.0.0.tgb";
        assert_eq!(found(Op::Delete, key, sent.clone()), ["data-deleted"]);
        assert!(found(Op::Delete, "intents/p0/1/0-0.json", sent.clone()).is_empty());
        assert!(found(Op::Upload, key, sent.clone()).is_empty());
        let landed = What::Landed { created: true };
        assert!(
            found(Op::Delete, key, landed).is_empty(),
            "it was counted when sent"
        );
        let event = |actor| Event {
            at: Duration::ZERO,
            actor,
            request: 1,
            op: Op::Delete,
            key: key.into(),
            what: sent.clone(),
        };
        let mut none = Vec::new();
        check(&[event(3)], |actor| actor == 3, &mut none);
        assert!(none.is_empty(), "a reclaimer may");
    }

    #[test]
    fn no_client_lists_the_log() {
        let sent = What::Sent { print: 0, bytes: 0 };
        for prefix in ["log/", "log/0000", "", "l"] {
            assert_eq!(
                found(Op::List, prefix, sent.clone()),
                ["log-listed"],
                "{prefix:?}"
            );
        }
        for prefix in ["intents/", "snapshots/", "data/", "jobs/"] {
            assert!(found(Op::List, prefix, sent.clone()).is_empty(), "{prefix}");
        }
        assert!(found(Op::Get, "log/", sent).is_empty());
    }
}
