//! A whole-terminal display that is drawn over again without flicker: on the terminal's second screen, each frame
//! in one write over the frame before.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use rustix::termios::tcgetwinsize;
use tokio::signal::unix::{SignalKind, signal};

/// The second screen, without a cursor, and without wrapping: a long line is cut instead of moving all others.
const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
/// Clears from the cursor to the end of the line, and of the screen.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The display. Dropping it shows the terminal as it was.
#[derive(Debug)]
pub struct Screen(());

impl Screen {
    /// Opens the display; `None` where standard output is not a terminal or cannot move its cursor.
    pub fn open() -> io::Result<Option<Self>> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        if dumb || !io::stdout().is_terminal() {
            return Ok(None);
        }
        put(OPEN)?;
        Ok(Some(Self(())))
    }

    /// Draws a text over the one before; lines below the terminal's end are left out.
    pub fn draw(&mut self, text: &str) -> io::Result<()> {
        let rows = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        put(&frame(text, rows))
    }

    /// Returns at Ctrl-C or a request to terminate, so that the terminal can be restored.
    pub async fn interrupted() {
        let Ok(mut terminate) = signal(SignalKind::terminate()) else {
            return std::future::pending().await;
        };
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = put(CLOSE);
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Returns the bytes of a frame for a terminal with this many rows; 0 for an unknown number.
fn frame(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let shown = if rows == 0 {
        lines.len()
    } else {
        rows.min(lines.len())
    };
    let mut frame = HOME.to_owned();
    for (n, line) in lines[..shown].iter().enumerate() {
        let end = if n + 1 < shown { "\r\n" } else { "" };
        let cut = n + 1 == shown && shown < lines.len();
        let line = if cut { "..." } else { *line };
        // Writing to a string does not fail.
        let _ = write!(frame, "{line}{CLEAR_LINE}{end}");
    }
    frame + CLEAR_BELOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_covers_the_one_before_and_ends_with_the_terminal() {
        assert_eq!(
            frame("a\nb\n", 24),
            "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J",
            "no line end after the last line, which would scroll"
        );
        let tall = frame("1\n2\n3\n4", 3);
        assert_eq!(tall, "\x1b[H1\x1b[K\r\n2\x1b[K\r\n...\x1b[K\x1b[J");
        assert_eq!(frame("1\n2", 0).matches("\r\n").count(), 1);
        assert!(!frame("a\nb", 9).contains("\x1b[2J"), "clearing flickers");
    }
}
