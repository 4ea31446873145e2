//! An inbox on this machine. Other users may write in it, so their links must not lead a producer elsewhere, and their
//! pipes must not hold it: each file is opened below the inbox, without a link, and only if it is a regular one.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use batchweave_core::inbox::{
    COMMIT, END, JOB_BYTES_MAX, Listed, Object, Read, file_name, is_writer,
};
use batchweave_store::file::inside;

/// The folders of an inbox.
#[derive(Debug, Default)]
pub(super) struct Folders {
    pub(super) names: Vec<String>,
    /// Links to folders under names of writers, which are not followed.
    pub(super) links: Vec<String>,
}

/// Returns the folders of an inbox, which may not exist yet.
pub(super) fn folders(path: &Path) -> io::Result<Folders> {
    let mut found = Folders::default();
    let entries = match std::fs::read_dir(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if kind.is_dir() {
            found.names.push(name);
        } else if kind.is_symlink() && is_writer(&name) && path.join(&name).is_dir() {
            found.links.push(name);
        }
    }
    found.names.sort_unstable();
    found.links.sort_unstable();
    Ok(found)
}

/// Lists a writer's folder: whole for the first time, then by the names that come next, whatever else it holds.
pub(super) fn listed(inbox: &Path, writer: &str, read: &Read) -> io::Result<Vec<Listed>> {
    let size = |name: &str| match size(inbox, writer, name) {
        Ok(size) => Ok(Some(of_size(name, size))),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why),
    };
    let mut listed = Vec::new();
    let Read::UpTo { number, .. } = read else {
        for entry in std::fs::read_dir(inbox.join(writer))? {
            if let Ok(name) = entry?.file_name().into_string()
                && Object::named(&name) != Object::Other
            {
                listed.extend(size(&name)?);
            }
        }
        listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        return Ok(listed);
    };
    // Before the files, since those before it are there when it is.
    let end = size(END)?;
    listed.extend(size(&file_name(*number))?);
    let mut next = number.checked_add(1);
    while let Some(number) = next {
        let Some(file) = size(&file_name(number))? else {
            break;
        };
        listed.push(file);
        next = number.checked_add(1);
    }
    listed.extend(end);
    Ok(listed)
}

pub(super) fn of_size(name: &str, size: u64) -> Listed {
    Listed {
        name: name.to_owned(),
        size,
        fingerprint: None,
    }
}

/// Returns the size of a regular file; names it in the error for any other.
pub(super) fn size(inbox: &Path, writer: &str, name: &str) -> io::Result<u64> {
    let size = inside::size(inbox, &Path::new(writer).join(name));
    size.map(|(size, _)| size).map_err(|why| named(name, why))
}

/// Opens a regular file.
pub(super) fn open(inbox: &Path, writer: &str, name: &str) -> io::Result<File> {
    inside::file(inbox, &Path::new(writer).join(name)).map_err(|why| named(name, why))
}

/// Reads the list of a job's files, which is bounded.
pub(super) fn commit(inbox: &Path, writer: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut bounded = open(inbox, writer, COMMIT)?.take(JOB_BYTES_MAX + 1);
    bounded.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > JOB_BYTES_MAX {
        let text =
            format!("{COMMIT} is larger than {JOB_BYTES_MAX} bytes, the most that a job needs");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(bytes)
}

/// Deletes the file, and never one behind a link.
pub(super) fn delete(path: &Path) -> io::Result<()> {
    let mut above = path.ancestors().skip(2);
    let inbox = above.next().unwrap_or(Path::new("."));
    match path.strip_prefix(inbox) {
        Ok(below) => inside::delete(inbox, below),
        Err(_) => Err(io::ErrorKind::NotFound.into()),
    }
}

fn named(name: &str, why: io::Error) -> io::Error {
    match why.kind() {
        io::ErrorKind::IsADirectory => io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name} is a folder: remove it"),
        ),
        _ if inside::is_refusal(&why) => {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{name} {why}"))
        }
        _ => why,
    }
}
