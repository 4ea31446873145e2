//! Which bad documents are logged, and with how many words.

/// Number of bad documents that are all logged.
const ALL_LOGGED: u64 = 64;
/// Most characters of the logged reason, which may quote the document.
const ERROR_CHARS: usize = 600;

/// Returns whether the `n`-th bad document is logged: all of the first ones, then every power of two. A file can
/// hold a million of them; the metric counts all.
pub(super) fn is_logged(n: u64) -> bool {
    n <= ALL_LOGGED || n.is_power_of_two()
}

pub(super) fn shortened(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(ERROR_CHARS) {
        text.truncate(at);
        text.push_str(" ...");
    }
    text
}
