//! The daemon's end of a simulated socket, and the packets that pass through it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::Segment;
use batchweave_log::Clock;
use tokio::sync::mpsc;

use crate::node::Outgoing;

/// A message, with the segment that it brings.
pub struct Packet {
    /// The message, encoded for the wire.
    pub bytes: Vec<u8>,
    /// The segment whose descriptor a real socket would pass.
    pub segment: Option<Arc<Segment>>,
}

/// The sending end of a simulated socket.
#[derive(Clone)]
pub(crate) struct SimulatedSocket(pub(crate) mpsc::Sender<Packet>);

impl SimulatedSocket {
    pub(crate) fn try_send(&self, outgoing: &Outgoing) -> io::Result<bool> {
        let (bytes, segment) = outgoing.encode()?;
        let segment = segment.cloned();
        match self.0.try_send(Packet { bytes, segment }) {
            Ok(()) => Ok(true),
            Err(mpsc::error::TrySendError::Full(_)) => Ok(false),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    pub(crate) async fn writable(&self) {
        // An error means that the rank is gone, which sending the next message finds out.
        let _ = self.0.reserve().await;
    }

    pub(crate) async fn ended(&self) {
        self.0.closed().await;
    }
}

/// The receiving end of a simulated socket.
pub(crate) struct SimulatedInbox {
    from: mpsc::UnboundedReceiver<Vec<u8>>,
    clock: Arc<dyn Clock>,
    /// A message that arrived while the daemon was frozen.
    arrived: Option<Vec<u8>>,
}

impl SimulatedInbox {
    pub(crate) fn new(from: mpsc::UnboundedReceiver<Vec<u8>>, clock: Arc<dyn Clock>) -> Self {
        Self {
            from,
            clock,
            arrived: None,
        }
    }

    /// Receives a message. Loses none if dropped before it is done.
    pub(crate) async fn receive(&mut self) -> Option<Vec<u8>> {
        if self.arrived.is_none() {
            self.arrived = self.from.recv().await;
        }
        // A frozen process receives messages only once it runs again.
        self.clock.sleep(Duration::ZERO).await;
        self.arrived.take()
    }
}
