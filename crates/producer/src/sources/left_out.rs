//! Names that a folder or a pattern leaves out: those that begin with `_` or `.`, as Spark, pyarrow
//! and datasets have it, and the files that tools and people put beside data. A file that is named is always read.

use std::fmt;

use super::Format;
use super::input_error::shown;

/// Names of files beside data, in lower case; also with an ending that is text, as `LICENSE.md` and `README-de`.
const BESIDE: [&str; 4] = ["readme", "license", "licence", "copying"];
/// The same, but with no other ending.
const EXACTLY: [&str; 11] = [
    "dataset_info.json",
    "dataset_infos.json",
    "dataset_dict.json",
    "state.json",
    "croissant.json",
    "md5sums",
    "sha1sums",
    "sha256sums",
    "sha512sums",
    "desktop.ini",
    "thumbs.db",
];
/// Endings of files with the digest of another.
const DIGESTS: [&str; 5] = [".md5", ".sha1", ".sha256", ".sha512", ".crc"];

/// Returns whether a file or folder of this name is none.
fn is_hidden(name: &str) -> bool {
    name.starts_with(['_', '.']) && name != "." && name != ".."
}

fn is_beside(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let about = |stem: &str| {
        let rest = name.strip_prefix(stem);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    };
    EXACTLY.contains(&name.as_str())
        || DIGESTS.iter().any(|ending| name.ends_with(ending))
        || BESIDE.iter().any(|stem| about(stem)) && Format::Auto.for_file(&name) == Format::Text
}

/// The names that a pattern spells out, which are read whatever they are.
#[derive(Debug, Clone, Default)]
pub(super) struct SpelledOut(Vec<glob::Pattern>);

impl SpelledOut {
    /// Returns the names of `pattern`: its segments that begin as such a name does.
    pub(super) fn of_pattern(pattern: &str) -> Self {
        let spelled = pattern.split('/').filter(|segment| {
            let literal = segment.split(['*', '?', '[']).next().unwrap_or_default();
            is_hidden(literal) || is_beside(literal)
        });
        Self(
            spelled
                .filter_map(|segment| glob::Pattern::new(segment).ok())
                .collect(),
        )
    }

    /// Returns whether the file at `path` is left out because of one of its names.
    pub(super) fn leaves_out(&self, path: &str) -> bool {
        let mut segments = path.split('/').rev();
        let out = |name: &str, is: fn(&str) -> bool| {
            is(name) && !self.0.iter().any(|spelled| spelled.matches(name))
        };
        let file = segments.next().unwrap_or_default();
        out(file, is_beside) || out(file, is_hidden) || segments.any(|name| out(name, is_hidden))
    }
}

/// The reason why files are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Their names are those of files beside data.
    Name,
    /// They are links to folders.
    LinkedFolder,
    /// They are in folders that a pattern matches.
    Below,
}

/// Files of one path that are left out for one reason; a folder counts as one.
#[derive(Debug, Clone)]
struct Omission {
    path: String,
    cause: Cause,
    names: Vec<String>,
}

/// The files of all paths that are left out.
#[derive(Debug, Clone, Default)]
pub struct LeftOut(Vec<Omission>);

impl LeftOut {
    /// Adds the files `names` of `path`.
    pub(super) fn add(&mut self, path: &str, cause: Cause, names: Vec<String>) {
        if !names.is_empty() {
            self.0.push(Omission {
                path: path.to_owned(),
                cause,
                names,
            });
        }
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Returns one line for each path and reason.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(ToString::to_string)
    }

    /// Returns number, first name and reason of each path's names.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, &str, &'static str)> {
        self.0.iter().map(|out| {
            let first = out.names.first().map_or("", String::as_str);
            (out.names.len(), first, out.cause.words())
        })
    }

    /// Returns why the file `name`, of an earlier list, is left out; `None` if it is not.
    pub(super) fn cause(&self, name: &str) -> Option<&'static str> {
        let holds = |out: &&Omission| {
            let at = |other: &String| {
                let rest = name.strip_prefix(other.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            out.names.iter().any(at)
        };
        self.0.iter().find(holds).map(|out| out.cause.words())
    }
}

impl Cause {
    fn words(self) -> &'static str {
        match self {
            Self::Name => {
                "names that begin with _ or ., README, LICENSE, dataset_info.json and digests are not read from a folder \
                 or pattern; name a file in source.paths to read it"
            }
            Self::LinkedFolder => {
                "links to folders are not followed; name the folder in source.paths"
            }
            Self::Below => {
                "they are in folders that the pattern matches; end it with / or /** to read these too"
            }
        }
    }
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.names.len();
        let first = self.names.first().map_or("", String::as_str);
        let (path, first, why) = (shown(&self.path), shown(first), self.cause.words());
        if n == 1 {
            return write!(f, "1 name in {path} is left out, {first}: {why}");
        }
        write!(f, "{n} names in {path} are left out, first {first}: {why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beside_data_are_left_out_unless_they_are_spelled_out() {
        let none = SpelledOut::default();
        for out in [
            "_SUCCESS",
            ".x",
            "a/.git/x",
            "_temporary/0/part.jsonl",
            "a/_delta_log/0.json",
            "README",
            "Readme.md",
            "a/README-de.md",
            "LICENSE",
            "license.txt",
            "LICENSE-MIT",
            "dataset_info.json",
            "SHA256SUMS",
            "a.jsonl.sha256",
            "COPYING",
        ] {
            assert!(none.leaves_out(out), "{out}");
        }
        for data in [
            "a.jsonl",
            "a_b/c.jsonl",
            "readmes.jsonl",
            "license-texts.jsonl",
            "README.parquet",
            "licenses/a.txt",
            "a._x",
            "info.json",
            "x.md",
        ] {
            assert!(!none.leaves_out(data), "{data}");
        }
        for (pattern, path, out) in [
            ("/d/*.jsonl", "/d/_x.jsonl", true),
            ("/d/_*.jsonl", "/d/_x.jsonl", false),
            ("/d/_raw/*.jsonl", "/d/_raw/x.jsonl", false),
            ("/d/_raw/*.jsonl", "/d/_raw/.x.jsonl", true),
            ("/d/**/*", "/d/a/.x/b", true),
            ("/d/*.md", "/d/README.md", true),
            ("/d/**/README.md", "/d/a/README.md", false),
            ("/d/README*", "/d/README.txt", false),
            ("/d/LICENSE*", "/d/README.txt", true),
        ] {
            assert_eq!(
                SpelledOut::of_pattern(pattern).leaves_out(path),
                out,
                "{pattern} {path}"
            );
        }
    }
}
