//! Frames in use and their release: the state that a session shares with its slices.
//!
//! A frame is released when its last slice is dropped, in any thread. The socket stays open until the
//! last frame is released, because its end would free all frames for the daemon.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batchweave_arena::{Connection, FrameView};
use batchweave_wire::{ClientMessage, FRAMES_MAX, Layout, Release, SliceRef};

/// The socket and its frames in use.
pub(crate) struct Link {
    pub(crate) connection: Connection,
    /// First step not received in full; sent with every release.
    pub(crate) next_step: AtomicU64,
    /// The process that connected; a forked child sends nothing.
    owner: u32,
    frames: Mutex<Frames>,
}

#[derive(Default)]
struct Frames {
    /// Step and slice of each frame in use.
    held: BTreeMap<u64, (u64, u32)>,
    /// Dropped frames that were not released yet.
    dropped: Vec<u64>,
}

impl Frames {
    /// Returns whether another frame of the step is held; frames of a step have consecutive numbers.
    fn holds_beside(&self, id: u64, step: u64) -> bool {
        let before = self.held.range(..id).next_back();
        let after = self.held.range(id..).next();
        let of_step = |(_, held): (&u64, &(u64, u32))| held.0 == step;
        before.is_some_and(of_step) || after.is_some_and(of_step)
    }
}

impl Link {
    pub(crate) fn new(connection: Connection, next_step: u64) -> Arc<Self> {
        let owner = std::process::id();
        Arc::new(Self {
            connection,
            next_step: next_step.into(),
            owner,
            frames: Mutex::default(),
        })
    }

    pub(crate) fn is_inherited(&self) -> bool {
        std::process::id() != self.owner
    }

    /// Sends releases that could not be sent when their frames were dropped, as far as the socket has
    /// space. After the end of the socket none are needed.
    pub(crate) fn flush(&self) {
        self.send_dropped(&mut self.frames());
    }

    /// Returns the slices of the frames in use, by step.
    pub(crate) fn held(&self) -> BTreeMap<u64, Vec<u32>> {
        let mut steps: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for &(step, slice) in self.frames().held.values() {
            steps.entry(step).or_default().push(slice);
        }
        steps
    }

    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_dropped(&self, frames: &mut Frames) {
        while !frames.dropped.is_empty() {
            let count = frames.dropped.len().min(FRAMES_MAX);
            let next_step = self.next_step.load(Ordering::Relaxed);
            let release = Release {
                next_step,
                frames: frames.dropped[..count].to_vec(),
            };
            let Ok(message) = ClientMessage::Release(release).encode() else {
                return;
            };
            match self.connection.send(&message, None) {
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                _ => drop(frames.dropped.drain(..count)),
            }
        }
    }
}

/// One delivered frame; dropping it releases it.
pub(crate) struct Frame {
    pub(crate) view: FrameView,
    pub(crate) layout: Arc<Layout>,
    id: u64,
    link: Arc<Link>,
}

impl Frame {
    pub(crate) fn new(
        link: &Arc<Link>,
        step: u64,
        at: &SliceRef,
        view: FrameView,
        layout: Arc<Layout>,
    ) -> Self {
        link.frames().held.insert(at.frame, (step, at.slice));
        Self {
            view,
            layout,
            id: at.frame,
            link: Arc::clone(link),
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.link.is_inherited() {
            return;
        }
        let mut frames = self.link.frames();
        let Some((step, _)) = frames.held.remove(&self.id) else {
            return;
        };
        frames.dropped.push(self.id);
        // One message for all slices of a step; a partly held step is released with the next call.
        if !frames.holds_beside(self.id, step) {
            self.link.send_dropped(&mut frames);
        }
    }
}
