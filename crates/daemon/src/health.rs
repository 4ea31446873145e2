//! How the daemon is: ready or not, in words, and whether its parts still move. What /readyz, the status
//! page and the service manager are told comes from here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use batchweave_store::counting::Counted;

/// Cheap to clone, all clones are the same.
#[derive(Debug, Clone)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    now: RwLock<(bool, String)>,
    /// When each part that must move moved last.
    hearts: Mutex<BTreeMap<&'static str, Instant>>,
    store: OnceLock<Counted>,
}

impl Default for Health {
    fn default() -> Self {
        Self(Arc::new(Inner {
            now: RwLock::new((false, "starting".into())),
            hearts: Mutex::default(),
            store: OnceLock::new(),
        }))
    }
}

impl Health {
    /// Ready, with a line on what the daemon is doing.
    pub fn ready(&self, text: impl Into<String>) {
        self.set(true, text.into());
    }

    /// Not ready, with the reason.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(false, reason.into());
    }

    /// Nothing is ready without the store: while it does not answer, this says so. Its first call
    /// counts.
    pub fn needs(&self, store: Counted) {
        // The registry of metrics is made once a process too.
        let _ = self.0.store.set(store);
    }

    /// Why the store gives no answers; none while it does.
    pub fn store_fails(&self) -> Option<String> {
        self.0.store.get().and_then(Counted::failing)
    }

    /// Whether it is ready, and the text.
    pub fn get(&self) -> (bool, String) {
        let now = self.0.now.read();
        let (ready, text) = now.unwrap_or_else(PoisonError::into_inner).clone();
        match self.store_fails() {
            Some(why) => (false, format!("the store fails: {why}; {text}")),
            None => (ready, text),
        }
    }

    /// A part of the daemon moves. From its first call on it must do so again and again: a part that
    /// stops is stuck, and the service manager's watchdog is no longer fed.
    pub fn beat(&self, part: &'static str) {
        let mut hearts = self.0.hearts.lock().unwrap_or_else(PoisonError::into_inner);
        hearts.insert(part, Instant::now());
    }

    /// A part that has not moved for longer than `limit`.
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
    fn a_part_that_stopped_is_named() {
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
