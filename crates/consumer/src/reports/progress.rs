//! The positions of this node's ranks, stored for reclaimers and for producers that are held back: every
//! `job.progress_steps` steps or a quarter of the steps ahead, immediately when a rank waits for producers, and
//! every `PERIOD`.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::guards;
use batchweave_core::ids::AttemptId;
use batchweave_core::retention::Progress;
use tokio_util::sync::CancellationToken;

use crate::job::ranks::RankRange;
use crate::node::Node;
use crate::resources::Resources;

/// Longest time until changed progress is stored.
const PERIOD: Duration = Duration::from_secs(10);
/// The range of the time between two rounds, and its length in durations of the previous round: a fast
/// store is written more often, and requests are under way a third of the time at most.
const GAP: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));
const GAP_PER_ROUND: u32 = 2;

/// An object of this node, to be deleted once a newer one replaces it.
struct Stored {
    key: String,
    attempt: AttemptId,
    range: RankRange,
}

/// Stores progress until `stop`, and once more then.
pub(crate) async fn report(node: Arc<Node>, stop: CancellationToken) {
    let mut stored = Vec::new();
    loop {
        let last = tokio::select! {
            biased;
            () = stop.cancelled() => true,
            () = node.progress_due.notified() => false,
            () = node.resources.context.sleep(PERIOD) => false,
        };
        let context = &node.resources.context;
        let began = context.now();
        round(&node, &mut stored).await;
        if last {
            return;
        }
        context.sleep(gap(context.since(began))).await;
    }
}

fn gap(round: Duration) -> Duration {
    (round * GAP_PER_ROUND).clamp(GAP.0, GAP.1)
}

/// Stores new progress, then deletes the objects that it replaces. A LIST that misses both shows less progress
/// than there is, which is safe.
async fn round(node: &Node, stored: &mut Vec<Stored>) {
    let resources = &node.resources;
    let ranges = { node.lock().rank_ranges() };
    for range in ranges {
        let attempt = range.member.id;
        let known = |s: &Stored| s.attempt == attempt && s.range == range;
        if range.step <= range.member.start || stored.iter().any(known) {
            continue;
        }
        let progress = progress_of(resources, &range);
        let key = progress.key();
        if let Err(why) = resources.create(&key, progress.to_json().into()).await {
            tracing::warn!(key, %why, "progress could not be stored; retrying later");
            continue;
        }
        node.lock().progress_stored(&range);
        let replaced = |old: &mut Stored| {
            let inside = range.first <= old.range.first && old.range.last <= range.last;
            let inside = inside || guards::replaces_other_progress();
            old.attempt == attempt && inside && old.range.step <= range.step
        };
        for old in stored.extract_if(.., replaced) {
            if let Err(why) = resources.store.delete(&old.key).await {
                // The reclaimer deletes it with the attempt.
                tracing::debug!(key = old.key, %why, "older progress could not be deleted");
            }
        }
        stored.push(Stored {
            key,
            attempt,
            range,
        });
    }
    let live: Vec<AttemptId> = { node.lock().rank_ranges() }
        .iter()
        .map(|range| range.member.id)
        .collect();
    stored.retain(|old| live.contains(&old.attempt));
}

fn progress_of(resources: &Resources, range: &RankRange) -> Progress {
    let member = &range.member;
    Progress {
        format: 1,
        stream: resources.stream.stream_id,
        job: member.job.clone(),
        opened: member.opened,
        attempt: member.attempt,
        id: member.id,
        node: resources.node_name(),
        first: range.first,
        last: range.last,
        step: range.step,
        at: resources.context.calendar(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_follow_as_fast_as_the_store_is() {
        let ms = Duration::from_millis;
        let gaps = [0, 1, 4, 50, 400, 5000].map(|round| gap(ms(round)));
        assert_eq!(gaps, [1, 2, 8, 100, 800, 1000].map(ms));
    }
}
