//! Connections to the endpoint, kept open between requests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::authority::Authority;
use super::tunnel;
use crate::LowWater;
use crate::limits::{CHUNK_TIMEOUT, CONNECT_TIMEOUT, POOL_IDLE};
use crate::tls;

/// Most idle connections to keep.
const IDLE_MAX: usize = 64;
/// Bytes of a body that wake its reader, unless fewer are left.
const MARK_MAX: usize = 256 << 10;
/// Time for the runtime to notice that a socket became readable.
const LATE: Duration = Duration::from_millis(100);

/// A bidirectional stream of bytes.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {
    /// Returns the socket, if it carries the bytes of the body unchanged.
    fn plain(&self) -> Option<BorrowedFd<'_>>;
}

impl Wire for TcpStream {
    fn plain(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl Wire for TlsStream<TcpStream> {
    fn plain(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// An open connection: idle, or used by its owner.
pub(super) struct Connection {
    pub(super) wire: Box<dyn Wire>,
    to: Arc<Authority>,
    /// It has carried a request before, so the server may be closing it.
    pub(super) used: bool,
    low_water: Option<LowWater>,
    /// The low-water mark of the socket, in bytes.
    mark: usize,
}

impl Connection {
    /// Sets that `bytes` more bytes, or the end, are certain to come: only then is the reader woken.
    pub(super) fn expect(&mut self, bytes: usize) {
        let mark = bytes.clamp(1, MARK_MAX);
        if mark == self.mark {
            return;
        }
        if let (Some(set), Some(socket)) = (self.low_water, self.wire.plain()) {
            if set(socket, mark).is_err() {
                // Then every packet wakes the reader.
                self.low_water = None;
            }
            self.mark = mark;
        }
    }

    /// Reads from a body of which at least `into.len()` bytes are left.
    pub(super) async fn read(&mut self, into: &mut [u8]) -> Result<io::Result<usize>, Elapsed> {
        self.expect(into.len());
        let read = timeout(CHUNK_TIMEOUT, self.wire.read(into)).await;
        if read.is_ok() || self.mark == 1 {
            return read;
        }
        // A slow connection may have received less than the mark.
        self.expect(1);
        timeout(LATE, self.wire.read(into)).await
    }
}

/// The idle connections to all servers.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<(Connection, Instant)>>,
    tls: OnceCell<TlsConnector>,
    low_water: Option<LowWater>,
}

impl Pool {
    pub(super) fn new(low_water: Option<LowWater>) -> Self {
        Self {
            low_water,
            ..Self::default()
        }
    }

    /// Returns the most recently used connection, so that others can expire, or a new one.
    pub(super) async fn connect(
        &self,
        to: &Arc<Authority>,
        fresh: bool,
    ) -> Result<Connection, String> {
        if !fresh && let Some(connection) = self.take(to) {
            return Ok(connection);
        }
        let wire = match timeout(CONNECT_TIMEOUT, self.dial(to)).await {
            Ok(wire) => wire.map_err(|why| why.to_string())?,
            Err(_) => {
                return Err(format!(
                    "no connection within {} s",
                    CONNECT_TIMEOUT.as_secs()
                ));
            }
        };
        Ok(Connection {
            wire,
            to: Arc::clone(to),
            used: false,
            low_water: self.low_water,
            mark: 1,
        })
    }

    fn take(&self, to: &Authority) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, since)| since.elapsed() < POOL_IDLE);
        let at = idle
            .iter()
            .rposition(|(connection, _)| *connection.to == *to)?;
        Some(idle.remove(at).0)
    }

    /// Takes back a connection whose answer was read to its end.
    pub(super) fn give_back(&self, mut connection: Connection) {
        connection.used = true;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() == IDLE_MAX {
            idle.remove(0);
        }
        idle.push((connection, Instant::now()));
    }

    async fn dial(&self, to: &Authority) -> io::Result<Box<dyn Wire>> {
        let (host, port) = match &to.proxy {
            Some(proxy) => (proxy.host.as_str(), proxy.port),
            None => (to.host.as_str(), to.port),
        };
        let mut stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        if !to.tls {
            return Ok(Box::new(stream));
        }
        if let Some(proxy) = &to.proxy {
            tunnel::open(&mut stream, proxy, to).await?;
        }
        let tls = self.tls.get_or_try_init(trusting_the_system).await?;
        let name = ServerName::try_from(to.host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }
}

/// Returns the same TLS setup as the SDK's client.
async fn trusting_the_system() -> io::Result<TlsConnector> {
    let roots = tokio::task::spawn_blocking(tls::system_roots).await;
    let config = tls::trusting(roots.map_err(io::Error::other)?);
    Ok(TlsConnector::from(Arc::new(
        config.map_err(io::Error::other)?,
    )))
}

#[cfg(test)]
mod tests;
