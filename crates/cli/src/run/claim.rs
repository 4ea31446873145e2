//! Locks of this user's runs: on the names of sockets, and on the producer of a stream. A lock ends with its process,
//! however that ends; its file stays, empty or with the number of the last process.

use std::fs::{File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Most characters of a stream's URL in the name of a lock file.
const NAME_MAX: usize = 100;

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    _lock: File,
}

/// The outcome of a try to lock.
#[derive(Debug)]
pub(super) enum Claimed {
    /// It is ours; the file did not exist before, or did.
    Ours { claim: Claim, used_before: bool },
    /// Another process has it: its number, where the file names it.
    Others(Option<u32>),
}

/// Locks `name` in `folder`.
pub(super) fn claim(folder: &Path, name: &str) -> std::io::Result<Claimed> {
    let path = file(folder, name);
    let used_before = path.exists();
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    let mut file = options.open(&path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            return Ok(Claimed::Others(holder.trim().parse().ok()));
        }
        Err(TryLockError::Error(why)) => return Err(why),
    }
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())?;
    let claim = Claim { _lock: file };
    Ok(Claimed::Ours { claim, used_before })
}

/// Returns whether another process has the lock; leaves no file behind.
pub(super) fn is_claimed(folder: &Path, name: &str) -> bool {
    let file = File::open(file(folder, name));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Returns the name of the lock on a producer of the stream at `url`.
pub(super) fn producer_lock(url: &str, producer: &str) -> String {
    let url = url.trim_end_matches('/');
    let mut hash = DefaultHasher::new();
    (url, producer).hash(&mut hash);
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let tail: String = url
        .chars()
        .rev()
        .take(NAME_MAX)
        .map(plain)
        .collect::<Vec<char>>()
        .into_iter()
        .rev()
        .collect();
    format!("run{tail}-{:016x}", hash.finish())
}

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_holder_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let claim = |name: &str| claim(folder.path(), name).unwrap();
        assert!(!is_claimed(folder.path(), "a"));
        assert!(!file(folder.path(), "a").exists(), "a look leaves nothing");
        let Claimed::Ours {
            claim: held,
            used_before,
        } = claim("a")
        else {
            panic!("refused");
        };
        assert!(!used_before && is_claimed(folder.path(), "a"));
        let Claimed::Others(holder) = claim("a") else {
            panic!("locked twice");
        };
        assert_eq!(holder, Some(std::process::id()));
        assert!(matches!(claim("b"), Claimed::Ours { .. }));
        drop(held);
        assert!(matches!(
            claim("a"),
            Claimed::Ours {
                used_before: true,
                ..
            }
        ));
    }

    #[test]
    fn streams_and_producers_have_locks_of_their_own() {
        let name = producer_lock("file:///data/my stream/", "p");
        assert_eq!(name, producer_lock("file:///data/my stream", "p"));
        assert!(name.starts_with("runfile----data-my-stream-"), "{name}");
        assert_ne!(name, producer_lock("file:///data/my-stream", "p"));
        assert_ne!(name, producer_lock("file:///data/my stream", "q"));
        assert!(producer_lock(&"ä/".repeat(4000), "p").len() < 200);
    }
}
