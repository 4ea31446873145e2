//! One look at a writer's folder: which files are new, and whether what is there can follow what was read.

use super::{COMMIT, Object};

/// The part of a writer that a producer has read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Read {
    #[default]
    Nothing,
    /// All files up to this one.
    UpTo {
        number: u64,
        size: u64,
        /// The pin of its content.
        fingerprint: String,
    },
    /// All files of its job.
    Job,
}

/// An object as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub size: u64,
    /// A pin of its content, where listing gives one.
    pub fingerprint: Option<String>,
}

/// The result of a look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// New files, in order, with their numbers.
    pub files: Vec<(u64, Listed)>,
    /// The writer has ended. Files that it made before may appear in the next look only.
    pub ended: bool,
    /// A job was committed.
    pub job: bool,
    /// The number of the first file, when earlier ones were deleted before they were read.
    pub begins_at: Option<u64>,
}

/// The reason why the objects of a writer cannot follow what was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A file between two others is missing.
    #[error(
        "file {missing} is missing, and file {next} is there: restore it, or let another stream that deletes files read an \
         inbox of its own"
    )]
    Missing { missing: u64, next: u64 },
    /// The newest file that was read is gone.
    #[error(
        "file {number}, which was read, is gone, and none is behind it: a writer's newest file is its memory, so the writer \
         would use numbers again whose rows would not be read; restore the inbox, or give the writer another name"
    )]
    Rewound { number: u64 },
    /// The newest file that was read has another content.
    #[error(
        "file {number} has another content than when it was read: the inbox was set back, and the rows written since would \
         not be read; give the writer another name"
    )]
    Rewritten { number: u64 },
    /// The folder holds files of a writer and of a job.
    #[error("it has numbered files and {COMMIT}: a name is either a writer's or a job's")]
    Mixed,
}

/// Returns what is new in a writer's folder of which `read` was read. `listed` are its objects in order of their names,
/// from [`super::look_after`] on.
pub fn look(read: &Read, listed: Vec<Listed>) -> Result<Found, Fault> {
    let mut found = Found::default();
    let mut numbered = Vec::new();
    for object in listed {
        match Object::named(&object.name) {
            Object::File(number) => numbered.push((number, object)),
            Object::End => found.ended = true,
            Object::Commit => found.job = true,
            Object::Other => {}
        }
    }
    if found.job && (!numbered.is_empty() || matches!(read, Read::UpTo { .. })) {
        return Err(Fault::Mixed);
    }
    let next = match read {
        Read::Job => return Ok(Found::default()),
        Read::Nothing => None,
        Read::UpTo {
            number,
            size,
            fingerprint,
        } => {
            let newest = numbered.first().filter(|(n, _)| n == number);
            if let Some((_, newest)) = newest {
                let pinned = newest.fingerprint.as_ref();
                if newest.size != *size || pinned.is_some_and(|is| is != fingerprint) {
                    return Err(Fault::Rewritten { number: *number });
                }
                numbered.remove(0);
            } else if numbered.is_empty() && !found.ended {
                return Err(Fault::Rewound { number: *number });
            }
            number.checked_add(1)
        }
    };
    let first = numbered.first().map(|(number, _)| *number);
    if next.is_none() {
        found.begins_at = first.filter(|number| *number > 0);
    }
    let mut expected = next.or(first).unwrap_or(0);
    for (number, _) in &numbered {
        if *number != expected {
            return Err(Fault::Missing {
                missing: expected,
                next: *number,
            });
        }
        // A folder may hold the last number that there is.
        expected = number.saturating_add(1);
    }
    found.files = numbered;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::{END, file_name};
    use super::*;

    fn listed(name: &str) -> Listed {
        Listed {
            name: name.to_owned(),
            size: 7,
            fingerprint: Some(format!("etag {name}")),
        }
    }

    fn files(numbers: &[u64]) -> Vec<Listed> {
        numbers.iter().map(|n| listed(&file_name(*n))).collect()
    }

    fn up_to(number: u64) -> Read {
        Read::UpTo {
            number,
            size: 7,
            fingerprint: format!("etag {}", file_name(number)),
        }
    }

    fn numbers(found: &Found) -> Vec<u64> {
        found.files.iter().map(|(number, _)| *number).collect()
    }

    #[test]
    fn new_files_follow_the_read_ones() {
        let found = look(&Read::Nothing, files(&[0, 1, 2])).unwrap();
        assert_eq!((numbers(&found), found.begins_at), (vec![0, 1, 2], None));
        let found = look(&up_to(1), files(&[1, 2, 3])).unwrap();
        assert_eq!(numbers(&found), [2, 3]);
        // The newest file that was read is deleted once there are later ones.
        let found = look(&up_to(1), files(&[2])).unwrap();
        assert_eq!(numbers(&found), [2]);
        let found = look(&Read::Nothing, files(&[5, 6])).unwrap();
        assert_eq!((numbers(&found), found.begins_at), (vec![5, 6], Some(5)));
        assert_eq!(look(&up_to(1), files(&[1])).unwrap(), Found::default());
        let last = look(&Read::Nothing, files(&[u64::MAX])).unwrap();
        assert_eq!(numbers(&last), [u64::MAX]);
        let last = look(&up_to(u64::MAX), files(&[u64::MAX])).unwrap();
        assert_eq!(last, Found::default());
    }

    #[test]
    fn an_end_needs_no_files() {
        let mut all = files(&[4]);
        all.push(listed(END));
        let found = look(&up_to(4), all).unwrap();
        assert!(found.ended && found.files.is_empty());
        assert!(look(&up_to(4), vec![listed(END)]).unwrap().ended);
        assert!(look(&Read::Nothing, vec![listed(END)]).unwrap().ended);
    }

    #[test]
    fn an_inbox_that_was_set_back_is_refused() {
        let missing = |missing, next| Err(Fault::Missing { missing, next });
        assert_eq!(look(&up_to(1), files(&[1, 3])), missing(2, 3));
        assert_eq!(look(&up_to(1), files(&[3])), missing(2, 3));
        assert_eq!(look(&Read::Nothing, files(&[0, 2])), missing(1, 2));
        assert_eq!(
            look(&up_to(1), Vec::new()),
            Err(Fault::Rewound { number: 1 })
        );
        let rewritten = Err(Fault::Rewritten { number: 1 });
        let mut other = files(&[1, 2]);
        other[0].fingerprint = Some("etag x".to_owned());
        assert_eq!(look(&up_to(1), other.clone()), rewritten);
        other[0].fingerprint = None;
        assert_eq!(numbers(&look(&up_to(1), other.clone()).unwrap()), [2]);
        other[0].size = 8;
        assert_eq!(look(&up_to(1), other), rewritten);
    }

    #[test]
    fn a_job_is_read_once() {
        let job = vec![listed(COMMIT), listed("part-000000-a.parquet")];
        let found = look(&Read::Nothing, job.clone()).unwrap();
        assert!(found.job && found.files.is_empty());
        assert_eq!(look(&Read::Job, job).unwrap(), Found::default());
        let mut mixed = files(&[0]);
        mixed.push(listed(COMMIT));
        assert_eq!(look(&Read::Nothing, mixed), Err(Fault::Mixed));
        assert_eq!(look(&up_to(0), vec![listed(COMMIT)]), Err(Fault::Mixed));
    }
}
