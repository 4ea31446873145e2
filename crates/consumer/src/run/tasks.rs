//! The daemon's tasks beside its socket: started together, ended in order.

use std::sync::Arc;
use std::time::Duration;

use batchweave_arena::Segment;
use batchweave_core::tgb::ranges::with_headers;
use batchweave_daemon::shutdown;
use batchweave_log::Log;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::ConsumerConfig;
use crate::engine::Limits;
use crate::fetch::Fetcher;
use crate::job::attempts::LogRequest;
use crate::job::deliveries::{Deliveries, Delivery};
use crate::job::values_task;
use crate::ledger;
use crate::log_follower::follow;
use crate::node::{Node, Parts};
use crate::reports::{heartbeat, progress};
use crate::resources::Resources;
use crate::segments::{Growth, SegmentMaker};
use crate::stream_head::Head;

/// Most requests that wait for the follower; a node has one or two.
pub(crate) const LOG_REQUESTS_MAX: usize = 64;

/// The receiving ends of requests to the follower and of reports to the ledger.
pub(crate) type Channels = (mpsc::Receiver<LogRequest>, mpsc::Receiver<Delivery>);

/// The running tasks, and the node that they share.
pub(crate) struct Tasks {
    pub(crate) node: Arc<Node>,
    /// Tasks that write marks, progress and heartbeats.
    pub(crate) writers: TaskTracker,
    finish: CancellationToken,
    ledger: JoinHandle<()>,
    finish_values: CancellationToken,
    values: JoinHandle<()>,
    /// Tasks that end with the process, or by themselves at `stop`.
    others: [JoinHandle<()>; 3],
}

impl Tasks {
    /// Starts all tasks. `stop` requests the last progress reports; `end` must follow.
    pub(crate) fn start(
        log: Log,
        (requests, delivered): Channels,
        parts: Parts,
        config: &ConsumerConfig,
        stop: &CancellationToken,
    ) -> Self {
        let node = Node::new(parts, Head::from_manifest(log.manifest()));
        let writers = TaskTracker::new();
        let (ahead, table) = (config.prefetch.steps, config.follow.clone());
        let beside = log.fork(&node.resources.context.log_options());
        let follower = tokio::spawn(follow(log, node.clone(), requests, table, ahead));
        let progress = writers.spawn(progress::report(node.clone(), stop.clone()));
        let heartbeat = writers.spawn(heartbeat::report(node.clone(), stop.clone()));
        let finish = CancellationToken::new();
        let ledger = tokio::spawn(ledger::keep(
            node.resources.clone(),
            beside,
            delivered,
            finish.clone(),
        ));
        let finish_values = CancellationToken::new();
        let values = values_task::run(node.resources.clone(), finish_values.clone());
        Self {
            node,
            writers,
            finish,
            ledger,
            finish_values,
            values: tokio::spawn(values),
            others: [follower, progress, heartbeat],
        }
    }

    /// Waits until marks, progress and ledgers are stored, for at most `deadline` each.
    pub(crate) async fn end(self, deadline: Duration) {
        self.writers.close();
        // A drain that times out is logged; ranks mark again after they reconnect.
        let _ = shutdown::drain("marks and progress", deadline, self.writers.wait()).await;
        // The ledger ends after the marks, which wait for it.
        self.finish.cancel();
        let _ = shutdown::drain("ledger", deadline, self.ledger).await;
        // The ledger has sealed the last values.
        self.finish_values.cancel();
        let _ = shutdown::drain("losses", deadline, self.values).await;
    }

    /// Aborts all tasks, as the end of the process does.
    pub(crate) fn kill(&self) {
        self.ledger.abort();
        self.values.abort();
        self.others.iter().for_each(JoinHandle::abort);
        self.node.resources.stop.cancel();
    }
}

/// Returns the parts of a node with the configured limits.
pub(super) fn parts(
    resources: Arc<Resources>,
    requests: mpsc::Sender<LogRequest>,
    deliveries: Deliveries,
    segments: SegmentMaker,
    first_segment: Arc<Segment>,
    config: &ConsumerConfig,
) -> Parts {
    let read_bytes = with_headers(config.prefetch.read_bytes.bytes());
    Parts {
        job: config.job.clone(),
        requests,
        deliveries,
        fetcher: Fetcher::new(
            Arc::clone(&resources),
            config.prefetch.concurrency,
            read_bytes,
        ),
        resources,
        limits: limits(config, segments.bytes()),
        segments,
        first_segment,
        growth: Growth {
            after: config.arena.grow_after.0,
            ranks: config.arena.ranks,
        },
    }
}

fn limits(config: &ConsumerConfig, arena_bytes: u64) -> Limits {
    let ahead_bytes = config.prefetch.bytes_of(&config.arena, arena_bytes);
    Limits {
        ahead_bytes,
        refill_bytes: config.prefetch.read_bytes.bytes().min(ahead_bytes / 4),
        steps_ahead: config.prefetch.steps,
        segment_bytes: config.arena.segment().bytes(),
        arena_bytes,
    }
}
