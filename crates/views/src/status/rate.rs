//! How fast the stream grows, from the times at which the store received the newest records.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_daemon::figures::{period, short};
use batchweave_store::Store;
use futures::{StreamExt, stream};
use serde::Serialize;

/// Most records whose times are requested.
const SAMPLES: usize = 16;
/// Most times that are kept.
const WRITTEN_MAX: usize = 256;
/// The rate is that of this time before the newest record, where records are that old.
const COVERED: Duration = Duration::from_mins(1);
/// A stream without a commit for this time does not grow now.
const STALLED: f64 = 60.0;

/// The growth of the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Rate {
    /// Steps per second up to the newest record; `None` when it is unknown.
    pub(super) steps_per_second: Option<f64>,
    pub(super) tokens_per_second: Option<f64>,
    /// The time that the rate covers.
    over_seconds: Option<f64>,
    /// Age of the newest record.
    last_commit_seconds: Option<f64>,
}

/// A record and the time at which it was written.
pub(super) type Written = (Version, SystemTime);

/// Adds the time of the newest record to those of earlier ones.
pub(super) async fn add_newest(
    store: &dyn Store,
    tgbs: &BTreeMap<Version, u64>,
    written: &mut Vec<Written>,
) {
    let newest = tgbs.last_key_value();
    let new = newest.filter(|(version, _)| written.last().is_none_or(|last| last.0 < **version));
    if let Some((version, tgbs)) = new {
        written.extend(times(store, &BTreeMap::from([(*version, *tgbs)])).await);
        let surplus = written.len().saturating_sub(WRITTEN_MAX);
        written.drain(..surplus);
    }
}

/// Reads the times of some of these records.
pub(super) async fn times(store: &dyn Store, tgbs: &BTreeMap<Version, u64>) -> Vec<Written> {
    let versions: Vec<Version> = tgbs.keys().copied().collect();
    let every = versions.len().div_ceil(SAMPLES).max(1);
    // From the end, so that the newest record is among them.
    let heads = versions
        .into_iter()
        .rev()
        .step_by(every)
        .map(|version| async move {
            let meta = store.head(&keys::log(version)).await.ok()?;
            Some((version, meta.modified?))
        });
    let mut written: Vec<Written> = stream::iter(heads)
        .buffer_unordered(SAMPLES)
        .filter_map(|one| async move { one })
        .collect()
        .await;
    written.sort_unstable();
    written
}

impl Rate {
    /// Returns the rate of a stream with `tokens` tokens per step.
    pub(super) fn between(
        written: &[Written],
        tgbs: &BTreeMap<Version, u64>,
        tokens: f64,
        now: SystemTime,
    ) -> Self {
        let Some(&(last, at)) = written.last() else {
            return Self::default();
        };
        let earlier = &written[..written.len() - 1];
        let age = |time: SystemTime| at.duration_since(time).unwrap_or_default();
        let within = earlier.iter().find(|(_, time)| age(*time) <= COVERED);
        // When there is a longer pause before the newest record: since the one before it.
        let first = within.or(earlier.last());
        let over = first
            .map(|(_, time)| age(*time).as_secs_f64())
            .filter(|seconds| *seconds > 0.0);
        let steps_per_second = first.zip(over).map(|((first, _), seconds)| {
            let steps: u64 = tgbs.range(first + 1..=last).map(|(_, tgbs)| tgbs).sum();
            steps as f64 / seconds
        });
        // The store's clock may be ahead of ours.
        let since = now.duration_since(at).unwrap_or_default();
        Self {
            steps_per_second,
            tokens_per_second: steps_per_second.map(|steps| steps * tokens),
            over_seconds: over,
            last_commit_seconds: Some(since.as_secs_f64()),
        }
    }

    /// Returns the steps per second at present: 0 when nothing was committed for a minute.
    pub(super) fn now(&self) -> Option<f64> {
        match self.last_commit_seconds {
            Some(since) if since > STALLED => Some(0.0),
            _ => self.steps_per_second,
        }
    }

    /// Formats the rate on one line; `None` when the store has no times.
    pub(super) fn text(&self) -> Option<String> {
        let ago = format!("last commit {} ago", period(self.last_commit_seconds?));
        let rate = self.tokens_per_second.zip(self.steps_per_second);
        let Some(((tokens, steps), over)) = rate.zip(self.over_seconds) else {
            return Some(ago);
        };
        let (tokens, steps, over) = (short(tokens), short(steps), period(over));
        Some(format!(
            "{tokens} tokens/s, {steps} steps/s over {over}; {ago}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_minute() {
        let began = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
        let at = |seconds| began + Duration::from_secs(seconds);
        let tgbs = BTreeMap::from([(7, 100), (8, 10), (9, 30), (10, 50)]);
        let rate = |written: &[Written], now| Rate::between(written, &tgbs, 10.0, at(now));
        // Version 7 is an hour older; those of version 8 are before the time that is covered.
        let written = [(7, began), (8, at(3600)), (9, at(3610)), (10, at(3620))];
        let seen = rate(&written, 3623);
        assert_eq!(seen.steps_per_second, Some(4.0));
        assert_eq!(
            seen.text().unwrap(),
            "40 tokens/s, 4 steps/s over 20 s; last commit 3.0 s ago"
        );
        assert_eq!(
            (seen.now(), rate(&written, 3700).now()),
            (Some(4.0), Some(0.0))
        );
        let paused = rate(&[(9, began), (10, at(100))], 100);
        assert_eq!(paused.steps_per_second, Some(0.5), "since the one before");
        // Times in whole seconds may be equal, and a clock may be behind the store's.
        let equal = rate(&[(9, at(9)), (10, at(9))], 8);
        assert_eq!(equal.steps_per_second, None);
        assert_eq!(equal.text().unwrap(), "last commit 0.0 s ago");
        assert_eq!(rate(&[], 0).text(), None);
    }
}
