//! Hints that objects were created, by inotify(7). A poll remains necessary: changes by other machines, and those
//! before the watch, go unnoticed.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::{Folder, kind_of};
use crate::{Effect, ErrorKind, Op, StoreError};

/// Bytes of events that are read at once; one event has at most 272.
const EVENT_BYTES: usize = 4096;

/// A watch of the objects directly below one prefix.
#[derive(Debug)]
pub struct Watch(AsyncFd<OwnedFd>);

impl Watch {
    /// Watches a folder for files that are linked or moved into it. Needs a tokio runtime.
    fn folder(path: &Path) -> io::Result<Self> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let kinds = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        inotify::add_watch(&events, path, kinds)?;
        Ok(Self(register(events)?))
    }

    /// Waits until something was created since the last call. Fails when nothing can be noticed any more, as after
    /// the folder was removed. Loses nothing when it is dropped before it is done.
    pub async fn changed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(drained) = ready.try_io(|events| drain(events.get_ref())) {
                return drained;
            }
        }
    }
}

/// Registers a descriptor with the runtime.
#[expect(
    deprecated,
    reason = "its replacement is unsafe: the caller vouches that the descriptor stays open, and this one is owned"
)]
fn register(events: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(events)
}

impl Folder {
    /// Returns a watch of the objects directly below `prefix`.
    pub(super) fn watch(&self, prefix: &str) -> Result<Watch, StoreError> {
        Watch::folder(&self.path.join(prefix)).map_err(|why| {
            if matches!(kind_of(&why), ErrorKind::NotFound | ErrorKind::Denied) {
                return self.io(Op::List, prefix, &why, Effect::DidNot);
            }
            let detail = format!("inotify: {why}; raise the limits in /proc/sys/fs/inotify");
            self.error(Op::List, prefix, ErrorKind::Other, Effect::DidNot, detail)
        })
    }
}

/// Reads all events; `WouldBlock` if there is none.
fn drain(events: &OwnedFd) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
    let mut reader = inotify::Reader::new(events, &mut buffer);
    let mut any = false;
    loop {
        match reader.next() {
            Ok(event) if event.events().contains(ReadFlags::IGNORED) => {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "the folder was removed",
                ));
            }
            Ok(_) => any = true,
            Err(Errno::AGAIN) if any => return Ok(()),
            Err(why) => return Err(why.into()),
        }
    }
}
