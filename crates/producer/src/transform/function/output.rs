//! Lines that the function prints: into the log, within a bound, and the last of them into the reason why a process ended.

use std::collections::VecDeque;
use std::io::{BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most bytes of a line; the rest is passed over.
const LINE_MAX: usize = 500;
/// Lines that are kept for the reason of an end.
const KEPT: usize = 3;
/// Most lines that are logged in each span of time.
const LOGGED: u64 = 20;
const SPAN: Duration = Duration::from_secs(10);

/// Bounds the lines that all processes log together.
#[derive(Debug, Default)]
pub(super) struct Limiter(Mutex<Span>);

#[derive(Debug, Default)]
struct Span {
    began: Option<Instant>,
    lines: u64,
}

impl Limiter {
    /// Logs a line, unless there were too many just before.
    fn log(&self, line: &str, now: Instant) {
        let mut span = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if span.began.is_none_or(|began| now - began >= SPAN) {
            let left_out = span.lines.saturating_sub(LOGGED);
            if left_out > 0 {
                tracing::info!(left_out, "the function printed more lines");
            }
            *span = Span {
                began: Some(now),
                lines: 0,
            };
        }
        span.lines += 1;
        if span.lines <= LOGGED {
            tracing::info!(line, "the function printed");
        }
    }
}

/// The last lines of one process.
#[derive(Debug, Clone, Default)]
pub(super) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lines as the end of a sentence.
    pub(super) fn quoted(&self) -> String {
        let lines = self.lines();
        let text = lines.iter().map(String::as_str).collect::<Vec<_>>();
        if text.is_empty() {
            String::new()
        } else {
            format!("; its last words: {}", text.join(" | "))
        }
    }

    /// Reads lines until the process closes its end.
    pub(super) fn follow(&self, from: impl Read, limiter: &Limiter) {
        let mut line = Vec::new();
        let mut from = BufReader::new(from).bytes();
        loop {
            let byte = from.next().and_then(Result::ok);
            match byte {
                Some(byte) if byte != b'\n' => {
                    if line.len() < LINE_MAX {
                        line.push(byte);
                    }
                    continue;
                }
                _ => {}
            }
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if !text.is_empty() {
                limiter.log(&text, Instant::now());
                let mut lines = self.lines();
                if lines.len() == KEPT {
                    lines.pop_front();
                }
                lines.push_back(text);
            }
            if byte.is_none() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_many_lines_are_bounded() {
        let last = LastLines::default();
        let limiter = Limiter::default();
        let long = "x".repeat(3000);
        let text = format!("one\n\n{long}\ntwo \nthree\nfour");
        last.follow(text.as_bytes(), &limiter);
        assert_eq!(last.quoted(), "; its last words: two | three | four");
        last.follow(format!("{long}\n").repeat(1000).as_bytes(), &limiter);
        assert_eq!(last.quoted().len(), 18 + 3 * LINE_MAX + 2 * 3);
        assert_eq!(limiter.0.lock().unwrap().lines, 1005);
    }
}
