//! The baseline: the same objects by raw sockets, each range read straight into shared memory, without
//! signatures, checks or hand-over.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use batchweave_arena::{FrameBuf, MemoryLimits, Segment};
use batchweave_console::CliError;
use batchweave_core::keys;
use batchweave_store::s3::S3Store;

use crate::bench::cpu::thread_time;
use crate::error::bench_error;

/// Size of a request: the daemon's largest.
const PIECE_BYTES: u64 = 16 << 20;
const SIGNED_FOR: Duration = Duration::from_hours(6);
const HEAD_BYTES: usize = 8192;

struct Piece {
    path: String,
    range: Range<u64>,
}

pub(super) struct Raw {
    host: String,
    pieces: Vec<Piece>,
    buffers: Vec<Mutex<FrameBuf>>,
    pub(super) bytes: u64,
}

fn socket_error(what: impl std::fmt::Display) -> CliError {
    bench_error(format!("raw sockets: {what}"))
}

impl Raw {
    /// Connects to nothing yet; the store's endpoint speaks plain HTTP.
    pub(super) async fn new(store: &S3Store, connections: usize) -> Result<Self, CliError> {
        let (mut host, mut pieces, mut bytes) = (String::new(), Vec::new(), 0);
        for object in batchweave_console::context::list(store, keys::DATA).await? {
            let url = store.presigned_get(&object.key, SIGNED_FOR).await?;
            let rest = url.strip_prefix("http://");
            let (at, path) = rest
                .and_then(|rest| rest.split_once('/'))
                .ok_or_else(|| socket_error("an object's URL is not http://HOST/PATH"))?;
            at.clone_into(&mut host);
            bytes += object.size;
            for start in (0..object.size).step_by(PIECE_BYTES as usize) {
                pieces.push(Piece {
                    path: format!("/{path}"),
                    range: start..(start + PIECE_BYTES).min(object.size),
                });
            }
        }
        let total = PIECE_BYTES * connections as u64;
        let segment =
            Segment::create("bench", total, &MemoryLimits::default()).map_err(socket_error)?;
        let reserve = |n| {
            segment
                .reserve(n * PIECE_BYTES, PIECE_BYTES)
                .map(Mutex::new)
        };
        let buffers: Result<_, _> = (0..connections as u64).map(reserve).collect();
        Ok(Self {
            host,
            pieces,
            buffers: buffers.map_err(socket_error)?,
            bytes,
        })
    }

    /// Reads all objects once. Returns the wall time, and the CPU time of all connections' threads.
    pub(super) fn pass(&self) -> Result<(Duration, Duration), CliError> {
        let next = AtomicUsize::new(0);
        let begun = Instant::now();
        let cpu = std::thread::scope(|scope| {
            let connection = |buffer| {
                let next = &next;
                scope.spawn(move || self.connection(next, buffer))
            };
            let all: Vec<_> = self.buffers.iter().map(connection).collect();
            let mut cpu = Duration::ZERO;
            for one in all {
                cpu += one
                    .join()
                    .map_err(|_| socket_error("a thread panicked"))??;
            }
            Ok::<_, CliError>(cpu)
        })?;
        Ok((begun.elapsed(), cpu))
    }

    fn connection(
        &self,
        next: &AtomicUsize,
        buffer: &Mutex<FrameBuf>,
    ) -> Result<Duration, CliError> {
        let before = thread_time()?;
        let mut stream = TcpStream::connect(&self.host).map_err(socket_error)?;
        stream.set_nodelay(true).map_err(socket_error)?;
        let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(piece) = self.pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            let length = (piece.range.end - piece.range.start) as usize;
            let into = &mut buffer.as_mut_slice()[..length];
            get(&mut stream, &self.host, piece, into).map_err(socket_error)?;
        }
        Ok(thread_time()?.saturating_sub(before))
    }
}

fn get(stream: &mut TcpStream, host: &str, piece: &Piece, into: &mut [u8]) -> io::Result<()> {
    let Piece { path, range } = piece;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nRange: bytes={}-{}\r\n\r\n",
        range.start,
        range.end - 1
    );
    stream.write_all(request.as_bytes())?;
    let mut head = [0; HEAD_BYTES];
    let mut filled = 0;
    let body = loop {
        let count = stream.read(&mut head[filled..])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += count;
        if let Some(at) = head[..filled]
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
        {
            break at + 4;
        }
    };
    if !head.starts_with(b"HTTP/1.1 206") {
        let text = String::from_utf8_lossy(&head[..filled]).into_owned();
        return Err(io::Error::other(text));
    }
    let first = &head[body..filled];
    let (begin, rest) = into
        .split_at_mut_checked(first.len())
        .ok_or_else(|| io::Error::other("more bytes than were asked for"))?;
    begin.copy_from_slice(first);
    stream.read_exact(rest)
}
