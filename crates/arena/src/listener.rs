//! The daemon's listening socket: one daemon per path; the stale file of a killed one is removed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, bind, connect, listen};

use crate::closing::refuse_descriptors;
use crate::socket::{Connection, address, new_socket, system};
use crate::{Peer, SocketError};

/// Most connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Tries, and the pause between them, while another daemon is binding in the same folder.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A listening socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    /// Device and inode of our socket file, so that another daemon's is never removed.
    file: (u64, u64),
    /// Whether peers can send descriptors to accepted connections: the kernel cannot refuse them.
    untrusted_fds: bool,
}

impl Listener {
    /// Binds `path` with permissions `mode` (0o600 for this user only).
    pub fn bind(path: &Path, mode: u32) -> Result<Self, SocketError> {
        let address = address(path)?;
        let _lock = lock_folder(path)?;
        remove_stale(path)?;
        let fd = new_socket(path)?;
        bind(&fd, &address).map_err(|e| match e {
            Errno::ADDRINUSE => SocketError::InUse {
                path: path.to_owned(),
            },
            Errno::NOENT | Errno::ACCESS | Errno::ROFS | Errno::NOTDIR => SocketError::Folder {
                path: path.to_owned(),
                source: e.into(),
            },
            e => system(path, "bind", e),
        })?;
        let failed = |source| SocketError::System {
            path: path.to_owned(),
            call: "chmod",
            source,
        };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
        let meta = fs::symlink_metadata(path).map_err(failed)?;
        let untrusted_fds = !refuse_descriptors(fd.as_fd());
        // Before this nobody can connect, so the socket is never usable with other permissions.
        listen(&fd, BACKLOG).map_err(|e| system(path, "listen", e))?;
        Ok(Self {
            fd,
            path: path.to_owned(),
            file: (meta.dev(), meta.ino()),
            untrusted_fds,
        })
    }

    /// Accepts one waiting connection and returns its peer; `WouldBlock` when there is none.
    pub fn accept(&self) -> io::Result<(Connection, Peer)> {
        loop {
            match accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => {
                    let connection = Connection::accepted(fd, self.untrusted_fds);
                    let peer = connection.peer()?;
                    return Ok((connection, peer));
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours = |m: fs::Metadata| (m.dev(), m.ino()) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// The state of a socket's path before it is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketPath {
    /// It can be bound: the folder is usable, and no process serves the path.
    Free,
    /// A process serves it.
    Served,
}

/// Checks that `path` can be bound, without binding it.
pub fn check_socket(path: &Path) -> Result<SocketPath, SocketError> {
    let address = address(path)?;
    let unusable = |source| SocketError::Folder {
        path: path.to_owned(),
        source,
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let usable = Access::WRITE_OK | Access::EXEC_OK;
    if !fs::metadata(folder).map_err(unusable)?.is_dir() {
        return Err(unusable(Errno::NOTDIR.into()));
    }
    access(folder, usable).map_err(|errno| unusable(errno.into()))?;
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(SocketPath::Free),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(SocketError::NotASocket {
                path: path.to_owned(),
            });
        }
        Ok(_) => {}
    }
    let stale = connect(&new_socket(path)?, &address);
    let free = matches!(stale, Err(Errno::CONNREFUSED | Errno::NOENT));
    Ok(if free {
        SocketPath::Free
    } else {
        SocketPath::Served
    })
}

/// Locks the socket's folder while binding, because two daemons that find the same stale file could each
/// remove the other's new one. A folder that cannot be locked (some network file systems) is used unlocked.
fn lock_folder(path: &Path) -> Result<Option<File>, SocketError> {
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let open = |source| SocketError::Folder {
        path: path.to_owned(),
        source,
    };
    let folder = File::open(folder).map_err(open)?;
    for _ in 0..LOCK_TRIES {
        match folder.try_lock() {
            Ok(()) => return Ok(Some(folder)),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
        }
    }
    Err(SocketError::InUse {
        path: path.to_owned(),
    })
}

/// Removes a socket file without a listener.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(SocketError::NotASocket {
                path: path.to_owned(),
            });
        }
        Ok(_) => {}
    }
    let probe = new_socket(path)?;
    match connect(&probe, &address(path)?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(|source| SocketError::Folder {
            path: path.to_owned(),
            source,
        }),
        Err(Errno::NOENT) => Ok(()),
        // Connected, or a full queue, or a socket of another type or user: the path is in use.
        _ => Err(SocketError::InUse {
            path: path.to_owned(),
        }),
    }
}
