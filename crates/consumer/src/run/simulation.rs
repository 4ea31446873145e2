//! The door for the simulator: the daemon over a given store, clock and generator, and the rank's end of a
//! simulated socket. All but configuration, admin endpoint and the socket itself is the daemon's own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::{MemoryLimits, Segment};
use batchweave_core::tgb::ranges::with_headers;
use batchweave_daemon::connection_slots::ConnectionSlots;
use batchweave_log::{Clock, Log};
use batchweave_store::Store;
use prometheus::Registry;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::ConsumerConfig;
use crate::context::Context;
use crate::error::RunError;
use crate::job::deliveries::Deliveries;
use crate::metrics::Metrics;
use crate::node::{Growth, Outgoing, Parts};
use crate::run::tasks::{ORDERS_MAX, Serving, limits};
use crate::segments::Memory;
use crate::server::connection::{self, Inbox, Peer};
use crate::server::session;

/// Messages that a simulated socket takes before its reader has read one.
const SOCKET_MESSAGES: usize = 8;

/// What a daemon is made of.
pub struct Setup {
    /// Its configuration; of the store, the socket and the admin endpoint nothing is used.
    pub config: ConsumerConfig,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The log in it, open.
    pub log: Log,
    /// What everything that waits asks for the time.
    pub clock: Arc<dyn Clock>,
    /// Feeds jitter and the ids of records.
    pub seed: [u8; 32],
    /// The time of day in objects.
    pub calendar: fn() -> String,
    /// The id of this run of the daemon.
    pub instance: [u8; 16],
}

/// A running daemon.
pub struct Daemon {
    serving: Serving,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
}

impl Daemon {
    /// Starts it.
    pub fn start(setup: Setup) -> Result<Self, RunError> {
        let Setup { config, log, .. } = setup;
        let metrics = Arc::new(Metrics::new(&Registry::new())?);
        // The machine's memory must not decide what happens.
        let unlimited = MemoryLimits::at("/nonexistent", "/nonexistent");
        let memory = Memory::within(unlimited, &config.arena).map_err(RunError::ArenaTooLarge)?;
        let first_segment = memory.segment()?;
        let (deliveries, delivered) = Deliveries::channel(metrics.clone());
        let (orders, ordered) = mpsc::channel(ORDERS_MAX);
        let context = Context::new(Arc::clone(&setup.clock), setup.seed, setup.calendar);
        let parts = Parts {
            stream: log.manifest().stream().clone(),
            instance: setup.instance,
            job: config.job.clone(),
            orders,
            deliveries,
            store: setup.store,
            context: Arc::new(context),
            metrics,
            stop: CancellationToken::new(),
            concurrency: config.prefetch.concurrency,
            read_bytes: with_headers(config.prefetch.read_bytes.bytes()),
            limits: limits(&config, memory.bytes()),
            memory,
            first_segment,
            growth: Growth {
                after: config.arena.grow_after.0,
                ranks: config.arena.ranks,
            },
        };
        let stop = CancellationToken::new();
        let serving = Serving::start(log, (ordered, delivered), parts, &config, &stop);
        Ok(Self {
            serving,
            clock: setup.clock,
            stop,
        })
    }

    /// A rank connects.
    pub fn connect(&self) -> Socket {
        let (to, heard) = mpsc::unbounded_channel();
        let (said, from) = mpsc::channel(SOCKET_MESSAGES);
        let wire = Wire(said);
        let inbox = Inbox::Simulated(Heard::new(heard, Arc::clone(&self.clock)));
        let Serving { hub, tasks, .. } = &self.serving;
        let session = session::serve(
            Arc::clone(hub),
            Peer::Simulated(wire),
            inbox,
            tasks.clone(),
            (None, ConnectionSlots::new(1).enter()),
        );
        tokio::spawn(session);
        Socket { to, from }
    }

    /// Stops as after SIGTERM: marks, progress and ledgers are stored, each within `deadline`, by the
    /// runtime's clock; then the sockets close.
    pub async fn stop(self, deadline: Duration) {
        // Also when the process dies meanwhile.
        let _sockets = self.serving.hub.stop.clone().drop_guard();
        self.stop.cancel();
        self.serving.end(deadline).await;
    }

    /// Ends as after SIGKILL.
    pub fn kill(&self) {
        self.serving.kill();
    }
}

/// A rank's end of a socket.
pub struct Socket {
    to: mpsc::UnboundedSender<Vec<u8>>,
    from: mpsc::Receiver<Packet>,
}

impl Socket {
    /// Sends a message; false when the daemon is gone.
    pub fn send(&self, message: Vec<u8>) -> bool {
        self.to.send(message).is_ok()
    }

    /// The next message; none when the daemon is gone.
    pub async fn receive(&mut self) -> Option<Packet> {
        self.from.recv().await
    }
}

/// A message, with the segment where it brings one.
pub struct Packet {
    /// The message.
    pub bytes: Vec<u8>,
    /// In place of its descriptor.
    pub segment: Option<Arc<Segment>>,
}

/// The daemon's sending end.
#[derive(Clone)]
pub(crate) struct Wire(mpsc::Sender<Packet>);

impl Wire {
    pub(crate) fn try_send(&self, outgoing: &Outgoing) -> io::Result<bool> {
        let (bytes, segment) = connection::parts(outgoing)?;
        let segment = segment.cloned();
        match self.0.try_send(Packet { bytes, segment }) {
            Ok(()) => Ok(true),
            Err(mpsc::error::TrySendError::Full(_)) => Ok(false),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    pub(crate) async fn writable(&self) {
        // An error says that the rank is gone, which the next message finds out.
        let _ = self.0.reserve().await;
    }

    pub(crate) async fn ended(&self) {
        self.0.closed().await;
    }
}

/// The daemon's receiving end.
pub(crate) struct Heard {
    from: mpsc::UnboundedReceiver<Vec<u8>>,
    clock: Arc<dyn Clock>,
    /// Came while the daemon was frozen.
    came: Option<Vec<u8>>,
}

impl Heard {
    pub(crate) fn new(from: mpsc::UnboundedReceiver<Vec<u8>>, clock: Arc<dyn Clock>) -> Self {
        let came = None;
        Self { from, clock, came }
    }

    /// Dropped before it is done, it loses nothing.
    pub(crate) async fn receive(&mut self) -> Option<Vec<u8>> {
        if self.came.is_none() {
            self.came = self.from.recv().await;
        }
        // A frozen process hears what came once it goes on.
        self.clock.sleep(Duration::ZERO).await;
        self.came.take()
    }
}
