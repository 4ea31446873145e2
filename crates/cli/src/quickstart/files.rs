//! The files that `quickstart` writes: none that is there, unless it may, and each whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::QuickstartError;

/// The text of the training script, which needs only the client and numpy.
pub(super) const SCRIPT: &str = include_str!("train.py");
/// A template for conversations of any model: each message with its role, and marks around it that no tokenizer knows.
pub(super) const TEMPLATE: &str = "\
{#- A plain template, written by `batchweave quickstart`: name your model's own in chat.template before you train it. -#}
{%- for message in messages %}{{ message.role }}: {% if message.role == 'assistant' %}{% generation %}{{ message.content }}
{% endgeneration %}{% else %}{{ message.content }}
{% endif %}{% endfor %}";

/// A file to be written.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// Writes the files; without `force` only if none of them exists.
pub(super) fn write_all(files: &[NewFile], force: bool) -> Result<(), QuickstartError> {
    if !force {
        let there = files
            .iter()
            .filter(|file| file.path.symlink_metadata().is_ok());
        let there: Vec<PathBuf> = there.map(|file| file.path.clone()).collect();
        if !there.is_empty() {
            return Err(QuickstartError::exists(&there));
        }
    }
    files.iter().try_for_each(|file| write(file, force))
}

fn write(file: &NewFile, force: bool) -> Result<(), QuickstartError> {
    let failed = |why: io::Error| QuickstartError::Write {
        path: file.path.clone(),
        why,
    };
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = file.path.with_file_name(format!(".{name}.new"));
    let ended = write_fresh(&fresh, &file.text).and_then(|()| place(&fresh, &file.path, force));
    if let Err(why) = ended {
        let _ = fs::remove_file(&fresh);
        if why.kind() == io::ErrorKind::AlreadyExists {
            return Err(QuickstartError::exists(std::slice::from_ref(&file.path)));
        }
        return Err(failed(why));
    }
    Ok(())
}

fn write_fresh(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Gives the file its name, in place of another one only with `force`.
fn place(fresh: &Path, path: &Path, force: bool) -> io::Result<()> {
    if force {
        return fs::rename(fresh, path);
    }
    match renameat_with(CWD, fresh, CWD, path, RenameFlags::NOREPLACE) {
        // A file system without such renames, as NFS: whether the file exists was checked before.
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(fresh, path),
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_file(path: PathBuf, text: &str) -> NewFile {
        let text = text.to_owned();
        NewFile { path, text }
    }

    #[test]
    fn a_file_that_is_there_stays_and_nothing_is_written_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("b"), "mine").unwrap();
        let files = [new_file(at("a"), "new"), new_file(at("b"), "new")];
        let why = write_all(&files, false).unwrap_err().to_string();
        assert!(why.contains("--force"), "{why}");
        assert_eq!(fs::read_to_string(at("b")).unwrap(), "mine");
        assert!(!at("a").exists());
        write_all(&files, true).unwrap();
        assert_eq!(fs::read_to_string(at("b")).unwrap(), "new");
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 2, "no other file is left");
    }

    #[test]
    fn a_file_that_appears_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "mine").unwrap();
        let why = write(&new_file(path.clone(), "new"), false).unwrap_err();
        assert!(matches!(why, QuickstartError::Exists { .. }), "{why}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
