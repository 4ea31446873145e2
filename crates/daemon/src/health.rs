//! Readiness in words, and a heartbeat of each part that must not stop. /readyz, the status page and the
//! service manager report this.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use batchweave_store::counting::Counted;
use serde::Serialize;

/// The beginning of a row of the data, for the status page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DataSample {
    /// The producer's number of the batch.
    pub batch: u64,
    /// `FILE:LINE` of the document with which the row begins.
    pub source: String,
    pub text: String,
}

/// Shared state of the daemon's health; clones share it.
#[derive(Debug, Clone)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    now: RwLock<(bool, String)>,
    /// Last heartbeat of each part.
    hearts: Mutex<BTreeMap<&'static str, Instant>>,
    /// Further facts on the status page, by name.
    facts: Mutex<BTreeMap<String, String>>,
    sample: Mutex<Option<DataSample>>,
    store: OnceLock<Counted>,
}

impl Default for Health {
    fn default() -> Self {
        Self(Arc::new(Inner {
            now: RwLock::new((false, "starting".into())),
            hearts: Mutex::default(),
            facts: Mutex::default(),
            sample: Mutex::default(),
            store: OnceLock::new(),
        }))
    }
}

impl Health {
    /// Sets ready, with a line on what the daemon is doing.
    pub fn ready(&self, text: impl Into<String>) {
        self.set(true, text.into());
    }

    /// Sets not ready, with the reason.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(false, reason.into());
    }

    /// Sets a line of the status page, such as the progress; an empty text removes it.
    pub fn tell(&self, name: impl Into<String>, text: impl Into<String>) {
        let name = name.into();
        let mut facts = self.0.facts.lock().unwrap_or_else(PoisonError::into_inner);
        match text.into() {
            text if text.is_empty() => facts.remove(&name),
            text => facts.insert(name, text),
        };
    }

    /// Returns the lines set by [`Self::tell`], by name.
    pub fn facts(&self) -> Vec<(String, String)> {
        let facts = self.0.facts.lock().unwrap_or_else(PoisonError::into_inner);
        facts
            .iter()
            .map(|(name, text)| (name.clone(), text.clone()))
            .collect()
    }

    /// Sets the sample of the data that the status page shows.
    pub fn show_sample(&self, sample: DataSample) {
        *self.0.sample.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
    }

    /// Returns the sample set by [`Self::show_sample`].
    pub fn sample(&self) -> Option<DataSample> {
        let sample = self.0.sample.lock();
        sample.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports not ready while `store` does not answer. Only the first call has an effect.
    pub fn watch_store(&self, store: Counted) {
        // The metrics registry, too, is made once per process.
        let _ = self.0.store.set(store);
    }

    /// Returns the last failure while the store does not answer.
    pub fn store_failure(&self) -> Option<String> {
        self.0.store.get().and_then(Counted::failing)
    }

    /// Returns whether the daemon is ready, and the text.
    pub fn get(&self) -> (bool, String) {
        let now = self.0.now.read();
        let (ready, text) = now.unwrap_or_else(PoisonError::into_inner).clone();
        match self.store_failure() {
            Some(why) => (false, format!("the store fails: {why}; {text}")),
            None => (ready, text),
        }
    }

    /// Records a heartbeat of a part of the daemon. After its first call it must repeat: a part that
    /// stops counts as stuck, and the service manager's watchdog is no longer fed.
    pub fn beat(&self, part: &'static str) {
        let mut hearts = self.0.hearts.lock().unwrap_or_else(PoisonError::into_inner);
        hearts.insert(part, Instant::now());
    }

    /// Returns a part whose last heartbeat is older than `limit`.
    pub fn stuck(&self, limit: Duration) -> Option<&'static str> {
        let hearts = self.0.hearts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut late = hearts.iter().filter(|(_, last)| last.elapsed() > limit);
        late.next().map(|(part, _)| *part)
    }

    fn set(&self, ready: bool, text: String) {
        *self.0.now.write().unwrap_or_else(PoisonError::into_inner) = (ready, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_part_is_named() {
        let health = Health::default();
        assert_eq!(
            health.stuck(Duration::ZERO),
            None,
            "nothing has to move yet"
        );
        health.beat("serving");
        assert_eq!(health.stuck(Duration::from_mins(1)), None);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(health.stuck(Duration::from_millis(1)), Some("serving"));
    }
}
