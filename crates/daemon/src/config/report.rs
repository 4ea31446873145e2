//! The report of a configuration's problems.

use std::fmt;
use std::ops::Range;

/// A problem with its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Line from 1; 0 when the problem has no place in the file.
    pub line: usize,
    /// Column from 1, in characters.
    pub column: usize,
    /// Path of the key; empty for syntax errors.
    pub key: String,
    /// The cause and a remedy.
    pub message: String,
}

impl Located {
    pub(super) fn at(text: &str, place: Option<Range<usize>>, key: &str, message: String) -> Self {
        let (line, column) = place.map_or((0, 0), |span| line_and_column(text, span.start));
        Self {
            line,
            column,
            key: key.into(),
            // toml ends some messages with a line break.
            message: message.trim_end().replace('\n', "; "),
        }
    }

    pub(super) fn whole_file(message: String) -> Self {
        Self {
            line: 0,
            column: 0,
            key: String::new(),
            message,
        }
    }
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before: Vec<char> = text
        .char_indices()
        .take_while(|(at, _)| *at < offset)
        .map(|(_, c)| c)
        .collect();
    let column = before.iter().rev().take_while(|c| **c != '\n').count() + 1;
    let line = before.iter().filter(|c| **c == '\n').count() + 1;
    (line, column)
}

/// All problems of one configuration file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    /// The file as given on the command line.
    pub file: String,
    /// Problems in the order of the file.
    pub problems: Vec<Located>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = self.problems.len() == 1;
        if !one {
            write!(f, "{} has {} problems:", self.file, self.problems.len())?;
        }
        for problem in &self.problems {
            write!(f, "{}{}", if one { "" } else { "\n  " }, self.file)?;
            if problem.line > 0 {
                write!(f, ":{}:{}", problem.line, problem.column)?;
            }
            f.write_str(": ")?;
            if !problem.key.is_empty() {
                write!(f, "{}: ", problem.key)?;
            }
            f.write_str(&problem.message)?;
        }
        Ok(())
    }
}
