//! Repeats in the log, which would fill disks while a store is down. Of a message that repeats within a
//! minute the first few are written, then one per minute with the number left out before it.
//!
//! Two messages are the same when their words and fields are, except for numbers and ids of at least
//! eight digits: a version in a key or a request id does not make a new message, a line number does.
//! Messages with the same words and other fields are of a kind, of which more are written: a peer that makes each of its
//! errors different must not fill a disk either.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Repeats that are written before the rest is left out.
pub(crate) const SAME: u32 = 5;
/// Messages of a kind that are written before the rest is left out.
pub(crate) const OF_A_KIND: u32 = 100;
const WINDOW: Duration = Duration::from_mins(1);
/// Distinct messages that are remembered; when there are more, all are written.
const KEPT: usize = 256;

struct Seen {
    since: Instant,
    written: u32,
    left_out: u64,
}

pub(crate) struct Repeats {
    seen: Mutex<BTreeMap<String, Seen>>,
    burst: u32,
}

impl Repeats {
    /// Returns a filter that writes the first `burst` repeats of a message.
    pub(crate) const fn new(burst: u32) -> Self {
        let seen = Mutex::new(BTreeMap::new());
        Self { seen, burst }
    }

    /// Returns how many repeats were left out before this message, or `None` to leave it out too.
    pub(crate) fn admit(&self, text: &str, now: Instant) -> Option<u64> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let key = pattern(text);
        if !seen.contains_key(&key) && seen.len() >= KEPT {
            seen.retain(|_, one| now.duration_since(one.since) < WINDOW);
            if seen.len() >= KEPT {
                return Some(0);
            }
        }
        let one = seen.entry(key).or_insert(Seen {
            since: now,
            written: 0,
            left_out: 0,
        });
        if now.duration_since(one.since) >= WINDOW {
            // While it keeps repeating, one per minute is enough; a quiet minute resets it.
            let goes_on = one.left_out > 0;
            one.since = now;
            one.written = if goes_on { self.burst - 1 } else { 0 };
        }
        if one.written >= self.burst {
            one.left_out += 1;
            return None;
        }
        one.written += 1;
        Some(std::mem::take(&mut one.left_out))
    }
}

/// Returns the text with ids replaced by `#`.
fn pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let body = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let id = body.len() >= 8 && body.bytes().all(|b| b.is_ascii_hexdigit());
        pattern.push_str(if id { "#" } else { word });
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_left_out_and_counted() {
        let repeats = Repeats::new(SAME);
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let written = (0..50).filter(|n| repeats.admit("down", at(*n)).is_some());
        assert_eq!(written.count(), SAME as usize);
        assert_eq!(repeats.admit("something else", at(50)), Some(0));
        assert_eq!(repeats.admit("down", at(60)), Some(45));
        assert_eq!(repeats.admit("down", at(61)), None, "it goes on");
        assert_eq!(repeats.admit("down", at(300)), Some(1));
    }

    #[test]
    fn ids_do_not_make_a_new_message_and_line_numbers_do() {
        let one = pattern("get log/00000000000000000017.json: 503 (request id 00000000000002FC)");
        let two = pattern("get log/00000000000000000018.json: 503 (request id 0000000000000301)");
        assert_eq!(one, two);
        assert_ne!(pattern("a.jsonl:17 is bad"), pattern("a.jsonl:18 is bad"));
    }

    #[test]
    fn a_flood_of_different_messages_is_written_and_not_kept() {
        let repeats = Repeats::new(SAME);
        let now = Instant::now();
        for n in 0..1000 {
            assert!(repeats.admit(&format!("bad document {n}"), now).is_some());
        }
        assert!(repeats.seen.lock().unwrap().len() <= KEPT);
    }
}
