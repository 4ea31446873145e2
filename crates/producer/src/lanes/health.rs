//! The health of all lanes joined into the daemon's one, which /readyz and the status page show.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use batchweave_daemon::health::Health;
use tokio::task::AbortHandle;

use crate::flow_control::PRODUCING;

/// The interval of the joins.
const EVERY: Duration = Duration::from_millis(500);

/// Joins the health of the lanes until it is dropped.
#[derive(Debug)]
pub(super) struct LaneHealth {
    lanes: Arc<Mutex<BTreeMap<String, Health>>>,
    task: AbortHandle,
}

impl LaneHealth {
    /// Begins to join the health of the lanes that `begin` adds into `health`.
    pub(super) fn start(health: Health) -> Self {
        let lanes = Arc::new(Mutex::new(BTreeMap::new()));
        let joined = lanes.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(EVERY).await;
                join(
                    &joined.lock().unwrap_or_else(PoisonError::into_inner),
                    &health,
                );
            }
        });
        Self {
            lanes,
            task: task.abort_handle(),
        }
    }

    /// Adds a lane that begins, in place of an earlier one of its name, and returns its health.
    pub(super) fn begin(&self, lane: &str) -> Health {
        let health = Health::default();
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.insert(lane.to_owned(), health.clone());
        health
    }

    /// A lane ended here, for this reason.
    pub(super) fn end(&self, lane: &str, why: &str) {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(health) = lanes.get(lane) {
            health.ready(why);
            for (name, _) in health.facts() {
                health.tell(name, "");
            }
        }
    }
}

impl Drop for LaneHealth {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ready when all lanes are; the text names those that do not produce.
fn join(lanes: &BTreeMap<String, Health>, all: &Health) {
    let mut others = Vec::new();
    let mut ready = true;
    for (lane, health) in lanes {
        let (is_ready, doing) = health.get();
        ready &= is_ready;
        let facts = health.facts().into_iter().map(|(_, text)| text);
        let texts: Vec<String> = std::iter::once(doing.clone()).chain(facts).collect();
        all.tell(lane.clone(), texts.join("; "));
        if doing != PRODUCING {
            others.push(format!("{lane}: {doing}"));
        } else if let Some(sample) = health.sample() {
            all.show_sample(sample);
        }
    }
    let text = if others.is_empty() {
        PRODUCING.to_owned()
    } else {
        others.join("; ")
    };
    if ready {
        all.ready(text);
    } else {
        all.not_ready(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_do_not_produce_are_named() {
        let a = Health::default();
        let b = Health::default();
        let all = Health::default();
        let lanes = BTreeMap::from([("a".to_owned(), a.clone()), ("b".to_owned(), b.clone())]);
        a.ready(PRODUCING);
        b.not_ready("opening the log");
        join(&lanes, &all);
        assert_eq!(all.get(), (false, "b: opening the log".to_owned()));
        b.ready(PRODUCING);
        b.tell("rate", "5 tokens/s");
        join(&lanes, &all);
        assert_eq!(all.get(), (true, PRODUCING.to_owned()));
        let facts = all.facts();
        assert_eq!(facts[0], ("a".to_owned(), PRODUCING.to_owned()));
        assert_eq!(
            facts[1],
            ("b".to_owned(), "producing; 5 tokens/s".to_owned())
        );
    }
}
