//! A daemon controlled by the test, with a real socket and real segments.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at what it did not expect"
)]

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchweave_arena::{Connection, Interest, Listener, MemoryLimits, Segment};
use batchweave_client::{Client, ConnectOptions, Reader};
use batchweave_wire::{
    ArrayLayout, BatchMessage, ClientMessage, DaemonMessage, Dtype, Hello, Layout, LayoutMessage,
    MESSAGE_BYTES_MAX, SegmentMessage, SliceRef, Welcome,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Tokens of a slice; its frame has 64 bytes.
pub(crate) const TOKENS: u32 = 16;
const SEGMENT_BYTES: u64 = 1 << 16;

pub(crate) struct Daemon {
    listener: Listener,
    instance: u8,
    pub(crate) slices: u32,
}

/// The daemon's side of one rank's session.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) hello: Hello,
    pub(crate) welcome: Welcome,
    segment: Arc<Segment>,
    buffer: Vec<u8>,
}

pub(crate) fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank.sock");
    (dir, path)
}

pub(crate) fn options(path: &Path) -> ConnectOptions {
    ConnectOptions {
        timeout: PATIENCE,
        ..ConnectOptions::new(path)
    }
}

/// Returns a reader of two slices per step and the daemon's side of its session, which has sent segment and layout.
pub(crate) fn connected(path: &Path) -> (Reader, Daemon, Session) {
    let daemon = Daemon::bind(path, 1);
    let (reader, session) = daemon.connect(options(path));
    (reader, daemon, session)
}

impl Daemon {
    pub(crate) fn bind(path: &Path, instance: u8) -> Self {
        Self {
            listener: Listener::bind(path, 0o600).unwrap(),
            instance,
            slices: 2,
        }
    }

    pub(crate) fn connect(&self, options: ConnectOptions) -> (Reader, Session) {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| Client::connect(options).unwrap());
            let session = self.welcome();
            (reader.join().unwrap(), session)
        })
    }

    /// Answers a client that asks for a description, on a connection of its own.
    pub(crate) fn answer(&self, message: &DaemonMessage) {
        let connection = self.accept_connection();
        assert!(connection.wait(Interest::Readable, PATIENCE).unwrap());
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let packet = connection.recv(&mut buffer).unwrap().unwrap();
        let asked = ClientMessage::decode(&buffer[..packet.bytes]);
        assert_eq!(asked, Ok(ClientMessage::Describe));
        connection.send(&message.encode().unwrap(), None).unwrap();
    }

    fn accept_connection(&self) -> Connection {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.listener.accept() {
                Ok((connection, _)) => return connection,
                Err(e) => assert!(Instant::now() < deadline, "nobody connects: {e}"),
            }
            std::thread::yield_now();
        }
    }

    /// Accepts the next connection and its hello.
    pub(crate) fn accept(&self) -> Session {
        let connection = self.accept_connection();
        let welcome = Welcome {
            session: 1,
            instance: [self.instance; 16],
            stream: [0x11; 16],
            attempt: [0; 16],
            attempt_number: None,
            next_step: 0,
            end_step: None,
            slices: self.slices,
            seq_len: TOKENS,
            rows_per_slice: 1,
            first_slice: 0,
            slice_count: self.slices,
            credits: 2,
        };
        let segment = Segment::create("fake", SEGMENT_BYTES, &MemoryLimits::default()).unwrap();
        let hello = Hello::new("nobody yet", 0);
        let mut session = Session {
            connection,
            hello,
            welcome,
            segment,
            buffer: vec![0; MESSAGE_BYTES_MAX],
        };
        let Some(ClientMessage::Hello(hello)) = session.recv() else {
            panic!("no hello")
        };
        hello.check().unwrap();
        session.welcome.next_step = hello.next_step;
        session.hello = hello;
        session
    }

    /// Welcomes the next connection, with segment and layout.
    pub(crate) fn welcome(&self) -> Session {
        let session = self.accept();
        session.send(&DaemonMessage::Welcome(session.welcome.clone()));
        session.send_segment(7, &session.segment);
        session.send(&DaemonMessage::Layout(LayoutMessage {
            id: 3,
            layout: layout(),
        }));
        session
    }
}

pub(crate) fn layout() -> Layout {
    let array = |name: &str, dtype, shape: &[u64], offset| ArrayLayout {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        offset,
    };
    let tokens = array("tokens", Dtype::U16, &[1, TOKENS.into()], 8);
    Layout {
        length: 64,
        arrays: vec![array("step", Dtype::U64, &[1], 0), tokens],
    }
}

impl Session {
    pub(crate) fn send(&self, message: &DaemonMessage) {
        self.connection
            .send(&message.encode().unwrap(), None)
            .unwrap();
    }

    pub(crate) fn send_segment(&self, id: u32, segment: &Arc<Segment>) {
        let message = DaemonMessage::Segment(SegmentMessage {
            id,
            bytes: segment.bytes(),
        });
        self.connection
            .send(&message.encode().unwrap(), Some(segment.as_fd()))
            .unwrap();
    }

    /// Sends a message with an unexpected descriptor.
    pub(crate) fn send_with_file(&self, message: &DaemonMessage) {
        let file = File::open("/proc/self/exe").unwrap();
        self.connection
            .send(&message.encode().unwrap(), Some(file.as_fd()))
            .unwrap();
    }

    /// Receives the rank's next message; `None` when it is gone.
    pub(crate) fn recv(&mut self) -> Option<ClientMessage> {
        assert!(
            self.connection.wait(Interest::Readable, PATIENCE).unwrap(),
            "the rank is silent"
        );
        let packet = self.connection.recv(&mut self.buffer).unwrap()?;
        assert!(packet.fd.is_none());
        Some(ClientMessage::decode(&self.buffer[..packet.bytes]).unwrap())
    }

    /// Receives the next message other than progress, which may arrive at any time.
    pub(crate) fn recv_deed(&mut self) -> Option<ClientMessage> {
        loop {
            match self.recv() {
                Some(ClientMessage::Progress(_)) => {}
                other => return other,
            }
        }
    }

    /// Receives a release: its frames and position.
    pub(crate) fn released(&mut self) -> (u64, Vec<u64>) {
        match self.recv_deed() {
            Some(ClientMessage::Release(release)) => (release.next_step, release.frames),
            other => panic!("no release but {other:?}"),
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        !self
            .connection
            .wait(Interest::Readable, Duration::ZERO)
            .unwrap()
    }

    /// Returns the place of a slice: frame number = step x slices + slice.
    pub(crate) fn place(&self, step: u64, slice: u32) -> SliceRef {
        let frame = step * u64::from(self.welcome.slices) + u64::from(slice);
        SliceRef {
            slice,
            segment: 7,
            layout: 3,
            frame,
            offset: frame * 64 % SEGMENT_BYTES,
            length: 64,
        }
    }

    /// Writes and delivers all slices of a step in one message.
    pub(crate) fn step(&self, step: u64) {
        let slices = self.fill(step);
        BatchMessage::split(step, &slices).for_each(|part| self.send(&DaemonMessage::Batch(part)));
    }

    pub(crate) fn fill(&self, step: u64) -> Vec<SliceRef> {
        let slices: Vec<_> = (0..self.welcome.slices)
            .map(|slice| self.place(step, slice))
            .collect();
        for place in &slices {
            let mut frame = self.segment.reserve(place.offset, 64).unwrap();
            frame.write_at(0, &step.to_le_bytes()).unwrap();
            for i in 0..u64::from(TOKENS) {
                let token = token(step, place.slice, i);
                frame.write_at(8 + 2 * i, &token.to_le_bytes()).unwrap();
            }
        }
        slices
    }
}

/// Returns the token that the fake daemon writes.
pub(crate) fn token(step: u64, slice: u32, at: u64) -> u16 {
    (step * 1000 + u64::from(slice) * 100 + at) as u16
}
