//! The daemon's tasks beside its socket: started together, and ended in order.

use std::sync::Arc;
use std::time::Duration;

use batchweave_daemon::shutdown;
use batchweave_log::Log;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::ConsumerConfig;
use crate::engine::Limits;
use crate::job::attempts::Order;
use crate::job::deliveries::Delivery;
use crate::ledger;
use crate::log_follower::{follow, head_of};
use crate::node::{Hub, Parts};
use crate::reports::{heartbeat, progress};

/// Attempts that wait to be opened; a node has one or two.
pub(crate) const ORDERS_MAX: usize = 64;

/// What the follower of the log and the ledger are asked for.
pub(crate) type Channels = (mpsc::Receiver<Order>, mpsc::Receiver<Delivery>);

/// The running tasks.
pub(crate) struct Serving {
    pub(crate) hub: Arc<Hub>,
    /// Marks, progress and heartbeats.
    pub(crate) tasks: TaskTracker,
    finish: CancellationToken,
    ledger: JoinHandle<()>,
    /// Those that end with the process alone, or finish what is theirs at `stop`.
    #[cfg_attr(not(feature = "simulation"), allow(dead_code))]
    others: [JoinHandle<()>; 3],
}

impl Serving {
    /// Starts everything; `stop` asks for the last progress, `end` follows after that.
    pub(crate) fn start(
        log: Log,
        (orders, delivered): Channels,
        parts: Parts,
        config: &ConsumerConfig,
        stop: &CancellationToken,
    ) -> Self {
        let hub = Hub::new(parts, head_of(log.manifest()));
        let tasks = TaskTracker::new();
        let (ahead, table) = (config.prefetch.steps, config.follow.clone());
        let beside = log.fork(&hub.context.log_options());
        let follower = tokio::spawn(follow(log, hub.clone(), orders, table, ahead));
        let progress = tasks.spawn(progress::report(hub.clone(), stop.clone()));
        let alive = tasks.spawn(heartbeat::report(hub.clone(), stop.clone()));
        let finish = CancellationToken::new();
        let ledger = tokio::spawn(ledger::keep(hub.clone(), beside, delivered, finish.clone()));
        Self {
            hub,
            tasks,
            finish,
            ledger,
            others: [follower, progress, alive],
        }
    }

    /// Waits until marks, progress and ledgers are stored, each for at most `deadline`.
    pub(crate) async fn end(self, deadline: Duration) {
        self.tasks.close();
        // A late drain is logged; ranks mark again after their reconnect.
        let _ = shutdown::drain("marks and progress", deadline, self.tasks.wait()).await;
        // After the marks, which wait for it.
        self.finish.cancel();
        let _ = shutdown::drain("ledger", deadline, self.ledger).await;
    }

    /// Ends everything as the end of the process does: nothing is finished.
    #[cfg(feature = "simulation")]
    pub(crate) fn kill(&self) {
        self.ledger.abort();
        self.others.iter().for_each(JoinHandle::abort);
        self.hub.stop.cancel();
    }
}

/// The bounds of the engine.
pub(crate) fn limits(config: &ConsumerConfig, arena_bytes: u64) -> Limits {
    let mut ahead_bytes = config.prefetch.bytes.bytes();
    if config.arena.bytes.bytes() == 0 {
        ahead_bytes = ahead_bytes.min(arena_bytes / 2);
    }
    Limits {
        ahead_bytes,
        refill_bytes: config.prefetch.read_bytes.bytes().min(ahead_bytes / 4),
        steps_ahead: config.prefetch.steps,
        segment_bytes: config.arena.segment_bytes.bytes(),
        arena_bytes,
    }
}
