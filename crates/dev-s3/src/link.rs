//! A slow link: a connection that carries a given number of bytes per second in each direction, in
//! small pieces.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// The number of pieces per second.
const PIECES: u64 = 50;

/// One direction of a connection.
struct Direction {
    bytes_per_second: u64,
    /// The time at which the next piece may pass.
    free: Pin<Box<Sleep>>,
}

impl Direction {
    fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second,
            free: Box::pin(sleep_until(Instant::now())),
        }
    }

    /// Waits until bytes may pass. Returns how many at most.
    fn poll_free(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        ready!(self.free.as_mut().poll(context));
        Poll::Ready((self.bytes_per_second / PIECES).max(1) as usize)
    }

    fn passed(&mut self, bytes: usize) {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        self.free.as_mut().reset(Instant::now() + takes);
    }
}

/// A connection, slow or not.
pub(crate) struct Link {
    stream: TcpStream,
    slow: Option<(Direction, Direction)>,
}

impl Link {
    pub(crate) fn new(stream: TcpStream, bytes_per_second: Option<u64>) -> Self {
        let slow = bytes_per_second.map(|rate| rate.max(1));
        Self {
            stream,
            slow: slow.map(|rate| (Direction::new(rate), Direction::new(rate))),
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsyncRead for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let Some((inward, _)) = &mut this.slow else {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        };
        let most = ready!(inward.poll_free(context)).min(buffer.remaining());
        let mut piece = vec![0; most];
        let mut read = ReadBuf::new(&mut piece);
        ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
        inward.passed(read.filled().len());
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        let Some((_, outward)) = &mut this.slow else {
            return Pin::new(&mut this.stream).poll_write(context, bytes);
        };
        let most = ready!(outward.poll_free(context)).min(bytes.len());
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, &bytes[..most]))?;
        outward.passed(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
