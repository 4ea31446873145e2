//! Inboxes: folders of a store into which writers append samples, and what a producer finds in them.
//!
//! A writer's folder holds files with numbers from 0 on, without gaps, and at last perhaps the object `end`; or the files
//! of one job, named by its `commit.json`. docs/inbox.md describes both.
//!
//! Invariants:
//! - files are created once and in the order of their numbers, so a listing from a known file on shows all later ones up
//!   to some number;
//! - a writer's newest file is never deleted, so its absence, or another content, means that the inbox was set back.

mod job;
mod look;

pub use job::{FILES_MAX, JOB_BYTES_MAX, JobCommit, JobFault, JobFile};
pub use look::{Fault, Found, Listed, Read, look};

use crate::ids::ProducerName;

/// The name of the object that ends a writer.
pub const END: &str = "end";
/// The name of the object that commits a job.
pub const COMMIT: &str = "commit.json";

/// Number of digits in a file's name.
const DIGITS: usize = 20;
const EXTENSION: &str = ".parquet";

/// An object in a writer's folder, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// The file with this number.
    File(u64),
    End,
    Commit,
    /// Not of an inbox, or a file of a job.
    Other,
}

impl Object {
    /// Returns the object of this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            END => Self::End,
            COMMIT => Self::Commit,
            _ => number(name).map_or(Self::Other, Self::File),
        }
    }
}

fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION)?;
    let plain = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// Returns the name of file `number`.
#[must_use]
pub fn file_name(number: u64) -> String {
    format!("{number:0DIGITS$}{EXTENSION}")
}

/// Returns whether a folder of this name can be a writer's.
#[must_use]
pub fn is_writer(name: &str) -> bool {
    name.parse::<ProducerName>().is_ok()
}

/// Returns the name after which the next look at a writer's folder begins, so that it shows the newest file that was
/// read and all behind it.
#[must_use]
pub fn look_after(read: &Read) -> String {
    match read {
        Read::UpTo { number, .. } if *number > 0 => file_name(number - 1),
        _ => String::new(),
    }
}

/// Returns whether everything that a look needs is listed once a name like this one is: names come in byte order.
#[must_use]
pub fn is_past(name: &str) -> bool {
    name > END
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_a_look_needs_them() {
        let names = [
            file_name(0),
            file_name(9),
            file_name(10),
            file_name(u64::MAX),
            COMMIT.to_owned(),
            END.to_owned(),
            "part-000000-a.parquet".to_owned(),
        ];
        assert!(names.is_sorted());
        assert_eq!(names.iter().filter(|name| is_past(name)).count(), 1);
        assert_eq!(
            names.each_ref().map(|name| Object::named(name)),
            [
                Object::File(0),
                Object::File(9),
                Object::File(10),
                Object::File(u64::MAX),
                Object::Commit,
                Object::End,
                Object::Other,
            ]
        );
    }

    #[test]
    fn other_names_are_no_files() {
        for name in [
            "1.parquet",
            "+0000000000000000001.parquet",
            "99999999999999999999.parquet",
            "00000000000000000001.parquet.tmp",
            "00000000000000000001.jsonl",
        ] {
            assert_eq!(Object::named(name), Object::Other, "{name}");
        }
        assert!(is_writer("w-0.a_b") && !is_writer("_temporary") && !is_writer("a b"));
    }
}
