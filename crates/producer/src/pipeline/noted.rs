//! Documents that are counted and logged: bad ones, those that were cut, and those whose JSON is read as Python reads it.

use crate::metrics::Metrics;
use crate::transform::json::Beyond;

/// Number of bad documents that are all logged.
const ALL_LOGGED: u64 = 64;
/// Most characters of the logged reason, which may quote the document.
const ERROR_CHARS: usize = 600;

/// The documents that were noted so far.
#[derive(Debug, Default)]
pub(super) struct NotedDocuments {
    /// Number of bad documents left out.
    left_out: u64,
    /// The kinds of JSON beyond the standard that were logged.
    beyond: Beyond,
    /// Number of documents that were cut.
    truncated: u64,
}

impl NotedDocuments {
    /// Counts a bad document, and logs some.
    pub(super) fn bad(&mut self, error: &str, pass: u64, metrics: &Metrics) {
        metrics.bad_documents.inc();
        self.left_out += 1;
        if is_logged(self.left_out) {
            let error = shortened(error.to_owned());
            tracing::warn!(
                error,
                pass,
                left_out = self.left_out,
                "bad document left out"
            );
        }
    }

    /// Counts a document that was bad for the release which wrote the cursor, so that its places among the others stay.
    pub(super) fn bad_before(&mut self, place: &str, pass: u64, metrics: &Metrics) {
        let error = format!(
            "{place}: not standard JSON, and left out by the release that wrote this cursor: left out again"
        );
        self.bad(&error, pass, metrics);
    }

    /// Counts a document that was cut to the tokens of a bin, and logs some.
    pub(super) fn truncated(&mut self, (tokens, place): &(u64, String), metrics: &Metrics) {
        metrics.balance.truncated_documents.inc();
        metrics.balance.truncated_tokens.inc_by(*tokens);
        self.truncated += 1;
        if self.truncated.is_power_of_two() {
            tracing::warn!(
                place,
                tokens,
                truncated = self.truncated,
                "document cut to the tokens of a bin (packing.balanced.long)"
            );
        }
    }

    /// Counts a document with JSON beyond the standard, and logs the first of each kind.
    pub(super) fn beyond(&mut self, (found, place): &(Beyond, String), metrics: &Metrics) {
        let before = self.beyond;
        self.beyond.add(*found);
        metrics.json_beyond.numbers.inc_by(found.numbers);
        metrics.json_beyond.surrogates.inc_by(found.surrogates);
        if before.numbers == 0 && found.numbers > 0 {
            tracing::warn!(
                first = place,
                "documents have NaN or infinite numbers, which JSON has not: they are read as Python reads them"
            );
        }
        if before.surrogates == 0 && found.surrogates > 0 {
            tracing::warn!(
                first = place,
                "documents have halves of surrogate pairs: each becomes U+FFFD"
            );
        }
    }
}

/// Returns whether the `n`-th bad document is logged: all of the first ones, then every power of two. A file can
/// hold a million of them; the metric counts all.
fn is_logged(n: u64) -> bool {
    n <= ALL_LOGGED || n.is_power_of_two()
}

fn shortened(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(ERROR_CHARS) {
        text.truncate(at);
        text.push_str(" ...");
    }
    text
}
