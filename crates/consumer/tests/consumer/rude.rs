//! Peers that break the protocol: each causes one error or one closed session, while another rank reads the whole
//! stream.

use std::path::Path;
use std::time::{Duration, Instant};

use batchweave_arena::{Connection, Interest};
use batchweave_wire::{
    BatchMessage, ClientMessage, DaemonMessage, ErrorName, Hello, MESSAGE_BYTES_MAX, Progress,
    Release,
};

use crate::serving::{TIMEOUT, options, read_all};
use crate::support::{Daemon, Stream, consumer};

/// A peer that sends arbitrary messages.
pub(crate) struct Rude {
    pub(crate) socket: Connection,
    buffer: Vec<u8>,
}

impl Rude {
    pub(crate) fn connect(path: &Path) -> Self {
        let deadline = Instant::now() + TIMEOUT;
        let socket = loop {
            match Connection::connect(path, deadline) {
                Ok(socket) => break socket,
                // The daemon is about to bind its socket.
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Err(why) => panic!("{why}"),
            }
        };
        Self {
            socket,
            buffer: vec![0; MESSAGE_BYTES_MAX],
        }
    }

    /// A reader without a job, so that it reads no coordinate of an attempt.
    pub(crate) fn greeted(path: &Path) -> Self {
        Self::with_hello(path, Hello::new("rude", 0))
    }

    pub(crate) fn with_hello(path: &Path, hello: Hello) -> Self {
        let rude = Self::connect(path);
        rude.say(&ClientMessage::Hello(hello));
        rude
    }

    pub(crate) fn say(&self, message: &ClientMessage) {
        self.bytes(&message.encode().unwrap());
    }

    pub(crate) fn bytes(&self, bytes: &[u8]) {
        assert!(self.socket.wait(Interest::Writable, TIMEOUT).unwrap());
        self.socket.send(bytes, None).unwrap();
    }

    /// Returns the next message; `None` at the end.
    pub(crate) fn hear(&mut self) -> Option<DaemonMessage> {
        loop {
            assert!(
                self.socket.wait(Interest::Readable, TIMEOUT).unwrap(),
                "silence"
            );
            match self.socket.recv(&mut self.buffer) {
                Ok(Some(packet)) => {
                    return Some(DaemonMessage::decode(&self.buffer[..packet.bytes]).unwrap());
                }
                Ok(None) => return None,
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(why) if why.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(why) => panic!("{why}"),
            }
        }
    }

    /// Returns the error that ends the session; `None` if it ends without one.
    fn error(mut self) -> Option<(ErrorName, String)> {
        loop {
            if let DaemonMessage::Error(fault) = self.hear()? {
                return Some((fault.known_name().unwrap(), fault.to_string()));
            }
        }
    }

    /// Returns the frames of the next step, which may come in several messages.
    fn step(&mut self) -> Vec<u64> {
        let mut frames = Vec::new();
        loop {
            let batch = self.batch();
            frames.extend(batch.slices.iter().map(|slice| slice.frame));
            if frames.len() == batch.of as usize {
                return frames;
            }
        }
    }

    pub(crate) fn batch(&mut self) -> BatchMessage {
        loop {
            if let DaemonMessage::Batch(batch) = self.hear().expect("a batch") {
                return batch;
            }
        }
    }
}

pub(crate) fn header(protocol: u16, kind: u16, length: u32) -> Vec<u8> {
    let fields = [
        &protocol.to_le_bytes()[..],
        &kind.to_le_bytes(),
        &length.to_le_bytes(),
        &[0; 4],
    ];
    [&b"BWSK"[..], &fields.concat()].concat()
}

fn before_any_hello(path: &Path) {
    let mut hello = ClientMessage::Hello(Hello::new("rude", 0))
        .encode()
        .unwrap();
    let half = Rude::connect(path);
    half.bytes(&hello[..hello.len() / 2]);
    assert_eq!(
        half.error().unwrap().0,
        ErrorName::BadMessage,
        "half a message"
    );
    let garbage = Rude::connect(path);
    garbage.bytes(&[0xee; 100]);
    assert_eq!(garbage.error().unwrap().0, ErrorName::BadMessage);
    let other = Rude::connect(path);
    other.bytes(&header(2, 5, 16));
    let (name, text) = other.error().unwrap();
    assert_eq!(name, ErrorName::ProtocolVersion);
    assert!(
        text.contains('2') && text.contains('1'),
        "both versions: {text}"
    );
    let early = Rude::connect(path);
    early.say(&ClientMessage::Bye);
    assert_eq!(early.error().unwrap().0, ErrorName::BadMessage, "no hello");
    hello.extend_from_slice(b"  more");
    let longer = Rude::connect(path);
    longer.bytes(&hello);
    assert_eq!(
        longer.error().unwrap().0,
        ErrorName::BadMessage,
        "its length is another"
    );
    // Global rank 0 never comes, so no welcome is sent before the next message, however slow this thread is.
    let waits = Hello {
        job: Some("llm".into()),
        attempt: Some("01".repeat(16)),
        dp_rank: 1,
        dp_size: 2,
        global_rank: Some(1),
        ..Hello::new("rude", 0)
    };
    let hasty = Rude::with_hello(path, waits);
    hasty.say(&ClientMessage::Bye);
    assert_eq!(
        hasty.error(),
        None,
        "nothing is to be said before the welcome"
    );
    drop(Rude::connect(path));
}

fn within_a_session(path: &Path) {
    let release = |frames, next_step| ClientMessage::Release(Release { next_step, frames });
    let mut twice = Rude::greeted(path);
    let frame = twice.batch().slices[0].frame;
    twice.say(&release(vec![frame], 1));
    twice.say(&release(vec![frame], 1));
    let (name, text) = twice.error().unwrap();
    assert_eq!(name, ErrorName::BadMessage);
    assert!(
        text.contains(&format!("release of frame {frame}")),
        "{text}"
    );
    let mut foreign = Rude::greeted(path);
    let _ = foreign.batch();
    foreign.say(&release(vec![u64::MAX], 0));
    assert_eq!(foreign.error().unwrap().0, ErrorName::BadMessage);
    let mut again = Rude::greeted(path);
    let _ = again.batch();
    again.say(&ClientMessage::Hello(Hello::new("rude", 0)));
    assert_eq!(
        again.error().unwrap().0,
        ErrorName::BadMessage,
        "a second hello"
    );
    let mut ahead = Rude::greeted(path);
    let frames = ahead.step();
    // A rank can't have received a frame that it was not sent.
    ahead.say(&ClientMessage::Progress(Progress {
        next_step: 1 << 50,
        waited_us: u64::MAX,
        waiting: true,
    }));
    ahead.say(&release(frames, 1 << 52));
    while ahead.batch().step < 2 {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_breaks_the_protocol_is_refused_and_others_are_unaffected() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(2).await;
    stream.commit(200, 20).await;
    stream.finish().await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let good = read_all(options(&daemon.socket, 0, 1, 0), 2, 3);
    let path = daemon.socket.clone();
    let rude = tokio::task::spawn_blocking(move || {
        before_any_hello(&path);
        within_a_session(&path);
    });
    rude.await.unwrap();
    assert_eq!(good.await.unwrap(), 200);
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_never_releases_stops_at_its_credits_and_delays_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(100, 20).await;
    stream.finish().await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let path = daemon.socket.clone();
    let never = tokio::task::spawn_blocking(move || {
        let mut never = Rude::greeted(&path);
        let mut steps = 0;
        loop {
            match never.hear().unwrap() {
                DaemonMessage::Batch(batch) => {
                    steps += 1;
                    never.say(&ClientMessage::Progress(Progress {
                        next_step: batch.step + 1,
                        waited_us: 0,
                        waiting: steps == 2,
                    }));
                }
                DaemonMessage::Waiting(waiting) => return (never, steps, waiting.cause.name()),
                _ => {}
            }
        }
    });
    let (never, steps, cause) = never.await.unwrap();
    assert_eq!((steps, cause), (2, "held_frames"), "its credits");
    assert_eq!(
        read_all(options(&daemon.socket, 0, 1, 0), 1, 3)
            .await
            .unwrap(),
        100
    );
    drop(never);
    daemon.stop().await.unwrap();
}

/// Its socket may be open elsewhere for a while: in a child that was forked, or by an array in a cycle of Python.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_says_goodbye_is_gone_once_it_uses_no_frame() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(1).await;
    stream.commit(100, 20).await;
    stream.finish().await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let path = daemon.socket.clone();
    let rank = tokio::task::spawn_blocking(move || {
        let release = |frames| {
            ClientMessage::Release(Release {
                next_step: 1,
                frames,
            })
        };
        let mut polite = Rude::greeted(&path);
        let first = polite.step();
        polite.say(&ClientMessage::Bye);
        polite.say(&release(first));
        // Those that were on their way.
        while let Some(message) = polite.hear() {
            if let DaemonMessage::Batch(batch) = message {
                let frames = batch.slices.iter().map(|slice| slice.frame);
                polite.say(&release(frames.collect()));
            }
        }
        drop(polite);
    });
    rank.await.unwrap();
    daemon.stop().await.unwrap();
}
