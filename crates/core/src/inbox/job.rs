//! `commit.json`: the files of a job whose tasks may run several times, which count all at once or not at all.

use serde::{Deserialize, Serialize};

/// Most files of a job.
pub const FILES_MAX: usize = 100_000;
/// Most bytes of `commit.json`.
pub const JOB_BYTES_MAX: u64 = 32 << 20;

const FORMAT: u32 = 1;

/// A file of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFile {
    /// Its name in the job's folder.
    pub name: String,
    pub rows: u64,
}

/// The content of `commit.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCommit {
    format: u32,
    /// The files of the tasks' winning attempts, in the order in which they are read.
    pub files: Vec<JobFile>,
}

/// The reason why `commit.json` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobFault {
    /// It is not of this form.
    #[error("not a list of a job's files ({detail})")]
    Malformed { detail: String },
    /// A newer program wrote it.
    #[error("format {format}, and this program reads {FORMAT}: upgrade the producer")]
    Format { format: u32 },
    /// It names too many files.
    #[error("{files} files, and at most {FILES_MAX} fit: write larger ones")]
    Many { files: usize },
    /// The rows of its files together are more than 64 bits count.
    #[error("its files have more than 2^64 rows together")]
    Rows,
    /// A name is not that of a Parquet file in the job's folder.
    #[error("{name:?} is not the name of a Parquet file in its folder")]
    Name { name: String },
    /// A file is named twice.
    #[error("{name} is named twice")]
    Twice { name: String },
}

impl JobCommit {
    /// Reads the content of `commit.json`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, JobFault> {
        let malformed = |why: serde_json::Error| JobFault::Malformed {
            detail: why.to_string(),
        };
        let commit: Self = serde_json::from_slice(bytes).map_err(malformed)?;
        if commit.format != FORMAT {
            let format = commit.format;
            return Err(JobFault::Format { format });
        }
        let files = commit.files.len();
        if files > FILES_MAX {
            return Err(JobFault::Many { files });
        }
        let mut counts = commit.files.iter().map(|file| file.rows);
        if counts.try_fold(0u64, u64::checked_add).is_none() {
            return Err(JobFault::Rows);
        }
        let mut names: Vec<&str> = commit.files.iter().map(|file| file.name.as_str()).collect();
        if let Some(name) = names.iter().find(|name| !is_name(name)) {
            return Err(JobFault::Name {
                name: name.chars().take(200).collect(),
            });
        }
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(JobFault::Twice {
                name: twice[0].to_owned(),
            });
        }
        Ok(commit)
    }
}

fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    name.ends_with(".parquet")
        && name.len() <= 255
        && !name.starts_with('.')
        && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Result<JobCommit, JobFault> {
        JobCommit::from_bytes(&serde_json::to_vec(value).unwrap())
    }

    #[test]
    fn a_commit_lists_files_in_order() {
        let files = json!([{"name": "part-1-b.parquet", "rows": 2}, {"name": "part-0-a.parquet", "rows": 0}]);
        let commit = read(&json!({"format": 1, "files": files, "later": true})).unwrap();
        let names: Vec<&str> = commit.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["part-1-b.parquet", "part-0-a.parquet"]);
        assert_eq!(read(&json!({"format": 1, "files": []})).unwrap().files, []);
    }

    #[test]
    fn other_contents_are_refused() {
        let rows = u64::MAX - 1;
        let files = json!([{"name": "a.parquet", "rows": rows}, {"name": "b.parquet", "rows": 2}]);
        assert_eq!(
            read(&json!({"format": 1, "files": files})),
            Err(JobFault::Rows)
        );
        let of = |name: &str| json!({"format": 1, "files": [{"name": name, "rows": 1}]});
        for name in [
            "../x.parquet",
            "a/b.parquet",
            "x",
            ".x.parquet",
            "é.parquet",
        ] {
            let why = read(&of(name)).unwrap_err();
            assert_eq!(
                why,
                JobFault::Name {
                    name: name.to_owned()
                }
            );
        }
        assert_eq!(
            read(&json!({"format": 2, "files": []})),
            Err(JobFault::Format { format: 2 })
        );
        let file = json!({"name": "a.parquet", "rows": 1});
        let twice = read(&json!({"format": 1, "files": [file, file]}));
        let name = "a.parquet".to_owned();
        assert_eq!(twice, Err(JobFault::Twice { name }));
        let many = read(&json!({"format": 1, "files": vec![file; FILES_MAX + 1]}));
        let files = FILES_MAX + 1;
        assert_eq!(many, Err(JobFault::Many { files }));
        for bad in [json!([]), json!({"format": 1}), json!({"files": []})] {
            assert!(
                matches!(read(&bad), Err(JobFault::Malformed { .. })),
                "{bad}"
            );
        }
    }
}
