//! A progress bar on standard error, on a terminal only.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use batchweave_console::output::bytes;

const PERIOD: Duration = Duration::from_millis(200);
const WIDTH: usize = 30;

pub(crate) struct Bar {
    what: &'static str,
    total: u64,
    done: u64,
    bytes: u64,
    began: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

impl Bar {
    /// Starts a bar for `total` units of work.
    pub(crate) fn new(what: &'static str, total: u64) -> Self {
        Self {
            what,
            total,
            done: 0,
            bytes: 0,
            began: Instant::now(),
            shown: None,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Adds finished units of work and their bytes.
    pub(crate) fn add(&mut self, units: u64, bytes: u64) {
        self.done += units;
        self.bytes += bytes;
        let due = self.shown.is_none_or(|shown| shown.elapsed() >= PERIOD);
        if self.terminal && due {
            self.shown = Some(Instant::now());
            write(&self.line(self.began.elapsed()));
        }
    }

    /// Adds the units of work up to `done` in all.
    pub(crate) fn reach(&mut self, done: u64) {
        self.add(done - self.done, 0);
    }

    /// Removes the bar from the terminal.
    pub(crate) fn end(&self) {
        if self.shown.is_some() {
            write("");
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let share = self.done as f64 / self.total.max(1) as f64;
        let full = ((share * WIDTH as f64) as usize).min(WIDTH);
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let speed = if self.bytes > 0 {
            format!("  {}/s", bytes((self.bytes as f64 / seconds) as u64))
        } else {
            String::new()
        };
        let left = seconds * (1.0 - share) / share.max(1e-9);
        let left = if self.done == 0 || left > 1e6 {
            String::new()
        } else {
            format!("  {}:{:02} left", left as u64 / 60, left as u64 % 60)
        };
        let (what, done, total) = (self.what, self.done, self.total);
        format!(
            "[{bar}] {:3.0} %  {done} of {total} {what}{speed}{left}",
            share * 100.0
        )
    }
}

fn write(line: &str) {
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "\r\x1b[K{line}").and_then(|()| err.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_share_speed_and_time_left() {
        let mut bar = Bar::new("steps", 400);
        bar.terminal = false;
        bar.add(100, 10 << 20);
        assert_eq!(
            bar.line(Duration::from_secs(30)),
            "[#######-----------------------]  25 %  100 of 400 steps  341.3 KiB/s  1:30 left"
        );
        assert!(
            Bar::new("records", 0)
                .line(Duration::ZERO)
                .ends_with("0 of 0 records")
        );
    }
}
