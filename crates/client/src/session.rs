//! One connection: hello and welcome, then segments, layouts and batches.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use batchweave_arena::{Connection, Interest, MappedSegment, SocketError};
use batchweave_wire::{
    BatchMessage, ClientMessage, DaemonMessage, Fault, Hello, Layout, MESSAGE_BYTES_MAX, Release,
    Stage, Waiting, Welcome, WireError,
};

use crate::ClientError;
use crate::batch::Slice;
use crate::frames::{Frame, Link};

/// Time for the daemon to read the last messages of a rank that leaves.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_PAUSE: Duration = Duration::from_micros(200);

/// An event of the session for its reader.
pub(crate) enum Event {
    Welcome(Welcome),
    Batch(BatchMessage),
    End(u64),
    Waiting(Waiting),
    Fault(Fault),
    Marked(u64),
    MarkRefused(Fault),
    Reported(u64),
    /// The daemon closed the connection.
    Gone,
    /// Nothing arrived in the given time.
    Nothing,
}

/// A failed try to open a session.
pub(crate) enum Failure {
    /// There is no daemon, or it disconnected: a retry may succeed.
    Absent(Option<SocketError>),
    /// A retry does not help.
    Final(ClientError),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Final(error)
    }
}

pub(crate) struct Session {
    pub(crate) link: Arc<Link>,
    socket: String,
    segments: BTreeMap<u32, Arc<MappedSegment>>,
    /// All received segments, including retired ones that frames still use.
    mapped: Vec<Weak<MappedSegment>>,
    layouts: BTreeMap<u32, Arc<Layout>>,
    /// The stage of the batches to come; `None` for the shape of stream.json.
    pub(crate) stage: Option<Arc<Stage>>,
    buffer: Vec<u8>,
}

impl Session {
    /// Connects and sends the hello; the welcome arrives as an event.
    pub(crate) fn open(path: &Path, hello: &Hello, deadline: Instant) -> Result<Self, Failure> {
        let connection = Connection::connect(path, deadline).map_err(|e| match e {
            SocketError::NoDaemon { .. } => Failure::Absent(Some(e)),
            e => Failure::Final(ClientError::Socket(e)),
        })?;
        let socket = path.display().to_string();
        let bad = |e: WireError| ClientError::BadMessage {
            socket: socket.clone(),
            reason: e.to_string(),
        };
        let message = ClientMessage::Hello(hello.clone()).encode().map_err(bad)?;
        connection
            .send(&message, None)
            .map_err(|_| Failure::Absent(None))?;
        Ok(Self {
            link: Link::new(connection, hello.next_step),
            socket,
            segments: BTreeMap::new(),
            mapped: Vec::new(),
            layouts: BTreeMap::new(),
            stage: None,
            buffer: vec![0; MESSAGE_BYTES_MAX],
        })
    }

    /// Waits for the next event and handles segments and layouts meanwhile.
    pub(crate) fn event(&mut self, timeout: Duration) -> Result<Event, ClientError> {
        let begun = Instant::now();
        loop {
            let packet = match self.link.connection.recv(&mut self.buffer) {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(Event::Gone),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let left = timeout.saturating_sub(begun.elapsed());
                    if left.is_zero() || !self.link.connection.wait(Interest::Readable, left)? {
                        return Ok(Event::Nothing);
                    }
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    return Err(self.bad(e.to_string()));
                }
                Err(e) => return Err(e.into()),
            };
            let message =
                DaemonMessage::decode(&self.buffer[..packet.bytes]).map_err(|e| match e {
                    WireError::Version { .. } => ClientError::ProtocolVersion(e),
                    e => self.bad(e.to_string()),
                })?;
            if let Some(event) = self.take_in(message, packet.fd)? {
                return Ok(event);
            }
        }
    }

    /// Keeps segments and layouts; returns other messages as events.
    fn take_in(
        &mut self,
        message: DaemonMessage,
        fd: Option<OwnedFd>,
    ) -> Result<Option<Event>, ClientError> {
        if fd.is_some() != matches!(message, DaemonMessage::Segment(_)) {
            return Err(self.bad("a descriptor comes with a segment message, and only with one"));
        }
        let event = match message {
            DaemonMessage::Segment(m) => {
                let Some(fd) = fd else { return Ok(None) };
                let segment = MappedSegment::map(fd, m.bytes)?;
                self.mapped.push(Arc::downgrade(&segment));
                if self.segments.insert(m.id, segment).is_some() {
                    return Err(self.bad(format!("segment {} was sent twice", m.id)));
                }
                return Ok(None);
            }
            DaemonMessage::Layout(m) => {
                self.layouts.insert(m.id, Arc::new(m.layout));
                return Ok(None);
            }
            DaemonMessage::Stage(m) => {
                self.stage = (m.id > 0).then(|| Arc::new(m));
                return Ok(None);
            }
            DaemonMessage::RetireSegment(id) => {
                self.segments.remove(&id);
                return Ok(None);
            }
            DaemonMessage::Welcome(m) => Event::Welcome(m),
            DaemonMessage::Batch(m) => Event::Batch(m),
            DaemonMessage::EndOfStream(step) => Event::End(step),
            DaemonMessage::Waiting(m) => Event::Waiting(m),
            DaemonMessage::Error(m) => Event::Fault(m),
            DaemonMessage::Marked(step) => Event::Marked(step),
            DaemonMessage::MarkRefused(fault) => Event::MarkRefused(fault),
            DaemonMessage::Reported(count) => Event::Reported(count),
            DaemonMessage::StreamInfo(_) => {
                return Err(self.bad("a stream_info in a session, which never asks for one"));
            }
        };
        Ok(Some(event))
    }

    /// Returns the slices of a batch message as views.
    pub(crate) fn slices(&self, batch: &BatchMessage) -> Result<Vec<Slice>, ClientError> {
        let one = |s: &batchweave_wire::SliceRef| {
            let Some(segment) = self.segments.get(&s.segment) else {
                return Err(self.bad(format!(
                    "step {}: segment {} is not known",
                    batch.step, s.segment
                )));
            };
            let layout = self.layouts.get(&s.layout).filter(|l| l.length == s.length);
            let Some(layout) = layout else {
                let (step, id, length) = (batch.step, s.layout, s.length);
                return Err(self.bad(format!(
                    "step {step}: layout {id} is not known for {length} bytes"
                )));
            };
            let view = segment
                .frame(s.offset, s.length)
                .map_err(|e| self.bad(e.to_string()))?;
            let frame = Frame::new(&self.link, batch.step, s, view, Arc::clone(layout));
            Ok(Slice {
                index: s.slice,
                frame: Arc::new(frame),
            })
        };
        batch.slices.iter().map(one).collect()
    }

    /// Sends if the socket has space; returns whether it did.
    pub(crate) fn send(&self, message: &ClientMessage) -> Result<bool, ClientError> {
        let bytes = message.encode().map_err(|e| self.bad(e.to_string()))?;
        match self.link.connection.send(&bytes, None) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // The end of the session is noticed when receiving.
            Err(_) => Ok(false),
        }
    }

    /// Sends the rank's final position and its goodbye, and waits for the daemon to read them, at most for
    /// `LINGER`: the daemon may see the end of a socket before its unread messages, and its ledger would
    /// lack the last steps.
    pub(crate) fn part(mut self, next_step: u64) {
        let deadline = Instant::now() + LINGER;
        self.link.flush();
        let position = Release {
            next_step,
            frames: Vec::new(),
        };
        let mut unread = [ClientMessage::Release(position), ClientMessage::Bye]
            .iter()
            .all(|message| self.insist(message, deadline));
        while unread && Instant::now() < deadline {
            unread = self.link.connection.unread().is_ok_and(|bytes| bytes > 0);
            std::thread::sleep(LINGER_PAUSE);
        }
        while let Ok(Some(_)) = self.link.connection.recv(&mut self.buffer) {}
    }

    /// Sends as soon as the socket has space; returns false when the daemon is gone or the time over.
    fn insist(&self, message: &ClientMessage, deadline: Instant) -> bool {
        let Ok(bytes) = message.encode() else {
            return false;
        };
        loop {
            match self.link.connection.send(&bytes, None) {
                Ok(()) => return true,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    std::thread::sleep(LINGER_PAUSE);
                }
                Err(_) => return false,
            }
        }
    }

    /// Ends this side of the session and returns the segments, some of which may still be in use.
    pub(crate) fn leave(self) -> Vec<Weak<MappedSegment>> {
        let _ = self.send(&ClientMessage::Bye);
        self.mapped
    }

    pub(crate) fn bad(&self, reason: impl Into<String>) -> ClientError {
        ClientError::BadMessage {
            socket: self.socket.clone(),
            reason: reason.into(),
        }
    }
}
