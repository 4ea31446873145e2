//! The daemon for the simulator: over a given store, clock and generator, with simulated sockets. Except for the
//! admin endpoint and the socket, all code is that of the real daemon.

use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::MemoryLimits;
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
use crate::resources::Resources;
use crate::run::tasks::{LOG_REQUESTS_MAX, Tasks, parts};
use crate::segments::SegmentMaker;
use crate::server::connection::{Connection, Inbox, PendingConnection};
use crate::server::session;
pub use crate::server::simulated::Packet;
use crate::server::simulated::{SimulatedInbox, SimulatedSocket};

/// Messages that a simulated socket accepts before its reader has read one.
const SOCKET_MESSAGES: usize = 8;

/// The parts of a daemon.
pub struct Setup {
    /// Its configuration, of which the tables of store, socket and admin endpoint are not used.
    pub config: ConsumerConfig,
    /// The store that it reads and writes.
    pub store: Arc<dyn Store>,
    /// The open log in the store.
    pub log: Log,
    /// The clock of all waits.
    pub clock: Arc<dyn Clock>,
    /// The seed of jitter and of record ids.
    pub seed: [u8; 32],
    /// Returns the time of day that is written into objects.
    pub calendar: fn() -> String,
    /// The random id of this run of the daemon.
    pub instance: [u8; 16],
}

/// A running daemon in the simulator.
pub struct Daemon {
    tasks: Tasks,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
}

impl Daemon {
    /// Starts a daemon; fails if the arena can't be created.
    pub fn start(setup: Setup) -> Result<Self, RunError> {
        let Setup { config, log, .. } = setup;
        let metrics = Arc::new(Metrics::new(&Registry::new())?);
        // The machine's memory must not influence the simulation.
        let unlimited = MemoryLimits::at("/nonexistent", "/nonexistent");
        let segments =
            SegmentMaker::within(unlimited, &config.arena).map_err(RunError::ArenaTooLarge)?;
        let first_segment = segments.create()?;
        let (deliveries, delivered) = Deliveries::channel(metrics.clone());
        let (requests, requested) = mpsc::channel(LOG_REQUESTS_MAX);
        let context = Context::new(Arc::clone(&setup.clock), setup.seed, setup.calendar);
        let resources = Arc::new(Resources {
            stream: log.manifest().stream().clone(),
            instance: setup.instance,
            store: setup.store,
            store_health: Arc::default(),
            context: Arc::new(context),
            metrics,
            states: Arc::default(),
            values: Arc::default(),
            stop: CancellationToken::new(),
        });
        let parts = parts(
            resources,
            requests,
            deliveries,
            segments,
            first_segment,
            &config,
        );
        let stop = CancellationToken::new();
        let tasks = Tasks::start(log, (requested, delivered), parts, &config, &stop);
        Ok(Self {
            tasks,
            clock: setup.clock,
            stop,
        })
    }

    /// Connects a rank and returns its end of the socket.
    pub fn connect(&self) -> Socket {
        let (to, inbox) = mpsc::unbounded_channel();
        let (outgoing, from) = mpsc::channel(SOCKET_MESSAGES);
        let connection = Connection::Simulated(SimulatedSocket(outgoing));
        let inbox = Inbox::Simulated(SimulatedInbox::new(inbox, Arc::clone(&self.clock)));
        let Tasks { node, writers, .. } = &self.tasks;
        let session = session::serve(
            Arc::clone(node),
            PendingConnection::new(connection, inbox, None),
            writers.clone(),
            ConnectionSlots::new(1).enter(),
        );
        tokio::spawn(session);
        Socket { to, from }
    }

    /// Stops as after SIGTERM: marks, progress and ledgers are stored, each within `deadline` of the runtime's
    /// clock; then the sockets close.
    pub async fn stop(self, deadline: Duration) {
        // The sockets close even if the process dies meanwhile.
        let _sockets = self.tasks.node.resources.stop.clone().drop_guard();
        self.stop.cancel();
        self.tasks.end(deadline).await;
    }

    /// Ends the daemon as after SIGKILL.
    pub fn kill(&self) {
        self.tasks.kill();
    }
}

/// A rank's end of a socket.
pub struct Socket {
    to: mpsc::UnboundedSender<Vec<u8>>,
    from: mpsc::Receiver<Packet>,
}

impl Socket {
    /// Sends a message; returns false if the daemon is gone.
    pub fn send(&self, message: Vec<u8>) -> bool {
        self.to.send(message).is_ok()
    }

    /// Receives the next message; `None` if the daemon is gone.
    pub async fn receive(&mut self) -> Option<Packet> {
        self.from.recv().await
    }
}
