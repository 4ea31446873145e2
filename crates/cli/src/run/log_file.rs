//! The log file of a daemon, read as it grows: its warnings and errors appear on the terminal, and the
//! message that it ended with.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes read at a time; of a faster log the oldest are left out.
const READ_MAX: u64 = 64 << 10;
/// Characters of a line that the terminal shows.
const LINE_MAX: usize = 400;
/// Lines shown at a time; the rest are counted.
const LINES_MAX: usize = 5;

#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    /// Everything before this offset was read.
    read: u64,
    /// Where the running daemon's part begins.
    began: u64,
}

impl LogFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            read: 0,
            began: 0,
        }
    }

    /// Notes that a daemon is started, which appends to the file.
    pub(super) fn begin(&mut self) {
        self.began = size(&self.path);
    }

    /// Returns the new warnings and errors, one line each.
    pub(super) fn news(&mut self) -> Vec<String> {
        let text = self.rest();
        let found: Vec<&str> = text.lines().filter_map(complaint).collect();
        let mut shown: Vec<String> = found.iter().take(LINES_MAX).map(|line| cut(line)).collect();
        if let Some(more) = found.len().checked_sub(LINES_MAX).filter(|more| *more > 0) {
            shown.push(format!("{more} more warnings and errors"));
        }
        shown
    }

    /// Returns the message that the daemon ended with, if it wrote one: its lines after the program's name.
    pub(super) fn last_words(&self, program: &str) -> Option<String> {
        let text = read(
            &self.path,
            self.began.max(size(&self.path).saturating_sub(READ_MAX)),
        );
        let start = format!("{program}: ");
        let at = text
            .rfind(&format!("\n{start}"))
            .map(|at| at + 1)
            .or_else(|| text.starts_with(&start).then_some(0))?;
        Some(text[at + start.len()..].trim_end().to_owned())
    }

    /// Returns the whole lines that were not read yet.
    fn rest(&mut self) -> String {
        let end = size(&self.path);
        self.read = self.read.max(end.saturating_sub(READ_MAX));
        let mut text = read(&self.path, self.read);
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        text.truncate(whole);
        self.read += whole as u64;
        text
    }
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}

fn read(path: &Path, from: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.take(READ_MAX).read_to_end(&mut bytes)
    });
    // The lines are for people only, and the file stays.
    match read {
        // Replacing a broken character would change the length.
        Ok(_) => String::from_utf8(bytes)
            .unwrap_or_else(|why| why.into_bytes().iter().map(|&byte| ascii(byte)).collect()),
        Err(_) => String::new(),
    }
}

fn ascii(byte: u8) -> char {
    if byte.is_ascii() { byte as char } else { '?' }
}

/// Returns a line's level and text if it is a warning or an error, in either format of the log.
fn complaint(line: &str) -> Option<&str> {
    let is_json = line.starts_with('{');
    let bad = |level: &str| {
        if is_json {
            line.contains(&format!("\"level\":\"{level}\""))
        } else {
            // After the time of day.
            line.split_ascii_whitespace().nth(1) == Some(level)
        }
    };
    if !bad("WARN") && !bad("ERROR") {
        return None;
    }
    if is_json {
        return Some(line);
    }
    line.split_once(' ').map(|(_, text)| text.trim_start())
}

fn cut(line: &str) -> String {
    let end = line.floor_char_boundary(LINE_MAX);
    let more = if end < line.len() { " ..." } else { "" };
    format!("{}{more}", &line[..end])
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, LogFile) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        std::fs::write(&path, text).unwrap();
        (folder, LogFile::new(path))
    }

    fn append(log: &LogFile, text: &str) {
        let old = std::fs::read_to_string(&log.path).unwrap();
        std::fs::write(&log.path, old + text).unwrap();
    }

    #[test]
    fn warnings_and_errors_are_news_once_and_as_whole_lines() {
        let (_folder, mut log) =
            file("2026-11-21T22:04:25Z  INFO began\n2026-11-21T22:04:26Z  WAR");
        assert_eq!(log.news(), Vec::<String>::new());
        append(&log, "N late why=x\n{\"level\":\"ERROR\",\"x\":1}\n");
        assert_eq!(
            log.news(),
            ["WARN late why=x", "{\"level\":\"ERROR\",\"x\":1}"]
        );
        assert_eq!(log.news(), Vec::<String>::new());
    }

    #[test]
    fn news_are_bounded() {
        let mut text = String::new();
        for number in 0..9 {
            writeln!(text, "t ERROR {number} {}", "ä".repeat(LINE_MAX)).unwrap();
        }
        let (_folder, mut log) = file(&text);
        let news = log.news();
        assert_eq!(news.len(), LINES_MAX + 1);
        assert!(news[0].len() <= LINE_MAX + 4 && news[0].ends_with(" ..."));
        assert_eq!(news[LINES_MAX], "4 more warnings and errors");
        append(&log, &"t ERROR y\n".repeat(READ_MAX as usize / 5));
        assert!(log.news().len() <= LINES_MAX + 1);
    }

    #[test]
    fn the_last_words_come_from_the_last_start() {
        let (_folder, mut log) = file("batchweave-x: first\n");
        assert_eq!(log.last_words("batchweave-x").as_deref(), Some("first"));
        log.begin();
        assert_eq!(log.last_words("batchweave-x"), None);
        append(
            &log,
            "t  INFO z\nbatchweave-x: f.toml has 1 problem:\n  f.toml: bad\n",
        );
        assert_eq!(
            log.last_words("batchweave-x").as_deref(),
            Some("f.toml has 1 problem:\n  f.toml: bad")
        );
    }
}
