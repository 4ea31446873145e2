//! The folders of an inbox that cannot be read as a writer's: each is named and counted, and the other writers go on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prometheus::IntGauge;

use crate::sources::SourceError;

/// Folders that one poll names at most; the rest are counted.
const NAMED_AT_ONCE: usize = 16;
/// While a folder stays bad, the log says so this often.
const SAID_AGAIN_AFTER: Duration = Duration::from_mins(1);

/// The folders of one inbox that are left out.
#[derive(Debug, Default)]
pub(super) struct BadFolders {
    all: BTreeMap<String, Bad>,
    /// The last line about all of them.
    said: Option<Instant>,
}

#[derive(Debug)]
struct Bad {
    error: SourceError,
    /// The folder stays left out until a restart: it was set back, and by its sizes it may look right later.
    stays: bool,
    is_new: bool,
    is_seen: bool,
}

impl BadFolders {
    /// Returns whether the folder of `writer` is left out until a restart.
    pub(super) fn stays(&self, writer: &str) -> bool {
        self.all.get(writer).is_some_and(|bad| bad.stays)
    }

    /// Begins a look, which says of each folder again that it is bad.
    pub(super) fn begin(&mut self) {
        for bad in self.all.values_mut() {
            bad.is_seen = false;
        }
    }

    /// Ends a look: folders that are bad no more, or are gone, are forgotten.
    pub(super) fn end(&mut self) {
        self.all.retain(|folder, bad| {
            let stays = bad.is_seen || bad.stays;
            if !stays {
                tracing::info!(folder, "this folder of an inbox is bad no more");
            }
            stays
        });
    }

    /// Notes why the folder of `writer` cannot be read.
    pub(super) fn bad(&mut self, writer: &str, error: SourceError, stays: bool) {
        let same = |bad: &Bad| bad.error.to_string() == error.to_string();
        let is_new = !self.all.get(writer).is_some_and(same);
        let is_new = is_new || self.all.get(writer).is_some_and(|bad| bad.is_new);
        let bad = Bad {
            error,
            stays,
            is_new,
            is_seen: true,
        };
        self.all.insert(writer.to_owned(), bad);
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the reason of the first folder, for an inbox in which no other can be read.
    pub(super) fn take_first(&mut self) -> Option<SourceError> {
        self.all.pop_first().map(|(_, bad)| bad.error)
    }

    /// Says which folders are left out: new ones at once, and all of them each minute.
    pub(super) fn report(&mut self) {
        let mut new = self.all.values_mut().filter(|bad| bad.is_new);
        for bad in new.by_ref().take(NAMED_AT_ONCE) {
            bad.is_new = false;
            tracing::warn!(
                error = %bad.error,
                "leaves out a folder of an inbox, and reads the others; looks again at each poll"
            );
        }
        let mut unnamed = 0;
        for bad in new {
            bad.is_new = false;
            unnamed += 1;
        }
        if unnamed > 0 {
            tracing::warn!(left_out = unnamed, "leaves out more folders of an inbox");
        }
        let Some((_, first)) = self.all.first_key_value() else {
            self.said = None;
            return;
        };
        let now = Instant::now();
        let said = *self.said.get_or_insert(now);
        if now - said >= SAID_AGAIN_AFTER {
            self.said = Some(now);
            let left_out = self.all.len();
            tracing::warn!(left_out, first = %first.error, "still leaves out folders of an inbox");
        }
    }
}

/// A gauge that several inboxes share.
#[derive(Debug)]
pub(crate) struct SharedGauge {
    gauge: IntGauge,
    own: i64,
}

impl SharedGauge {
    /// Returns a share of `gauge`, which is 0.
    pub(crate) fn new(gauge: IntGauge) -> Self {
        Self { gauge, own: 0 }
    }

    /// Sets the number of bad folders that this reader adds to the gauge.
    pub(crate) fn set(&mut self, count: usize) {
        let now = i64::try_from(count).unwrap_or(i64::MAX);
        self.gauge.add(now - self.own);
        self.own = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(why: &str) -> SourceError {
        SourceError::Inbox {
            folder: "in/a/".to_owned(),
            why: why.to_owned(),
        }
    }

    #[test]
    fn a_folder_is_bad_until_it_can_be_read_or_a_restart() {
        let mut folders = BadFolders::default();
        folders.bad("a", error("x"), false);
        folders.bad("b", error("set back"), true);
        folders.report();
        assert!(folders.all.values().all(|bad| !bad.is_new));
        folders.bad("a", error("x"), false);
        assert!(!folders.all["a"].is_new, "said twice");
        folders.bad("a", error("y"), false);
        assert!(folders.all["a"].is_new, "another reason is not said");
        folders.begin();
        folders.end();
        assert_eq!((folders.count(), folders.stays("b")), (1, true));
    }

    #[test]
    fn inboxes_share_a_gauge() {
        let gauge = IntGauge::new("g", "g").unwrap();
        let mut shares = [0, 1].map(|_| SharedGauge::new(gauge.clone()));
        shares[0].set(3);
        shares[1].set(2);
        shares[0].set(1);
        assert_eq!(gauge.get(), 3);
    }
}
