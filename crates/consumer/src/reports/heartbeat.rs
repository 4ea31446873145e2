//! Heartbeats: objects that renew the lease of a job while its ranks are connected, whether they make progress or
//! not. So a trainer that evaluates for hours, or waits for producers, keeps its lease.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::AttemptId;
use batchweave_core::keys;
use tokio_util::sync::CancellationToken;

use crate::job::membership::Member;
use crate::node::Node;
use crate::resources::Resources;

/// Bounds of the time between two checks of the connected ranks.
const CHECK_PERIOD: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// The number of heartbeats per lease.
const BEATS: u32 = 4;

/// The last heartbeat for one attempt.
struct Beat {
    attempt: AttemptId,
    key: String,
    at: Duration,
}

/// Stores heartbeats until `stop`.
pub(crate) async fn report(node: Arc<Node>, stop: CancellationToken) {
    let (mut beats, mut number): (Vec<Beat>, u64) = (Vec::new(), 0);
    loop {
        let leased = { node.lock().leased() };
        let shortest = leased.iter().map(|(_, lease)| *lease / BEATS).min();
        let pause = shortest
            .unwrap_or(CHECK_PERIOD.1)
            .clamp(CHECK_PERIOD.0, CHECK_PERIOD.1);
        let round = async {
            for (member, lease) in &leased {
                let own = |beat: &Beat| beat.attempt == member.id;
                let last = beats.iter().position(own);
                let due = |beat: &Beat| node.resources.context.since(beat.at) >= *lease / BEATS;
                if last.is_some_and(|at| !due(&beats[at])) {
                    continue;
                }
                number += 1;
                let Some(beat) = store(&node.resources, member, number).await else {
                    continue;
                };
                if let Some(old) = last.map(|at| beats.swap_remove(at))
                    && let Err(why) = node.resources.store.delete(&old.key).await
                {
                    // The reclaimer deletes it.
                    tracing::debug!(key = old.key, %why, "an older heartbeat could not be deleted");
                }
                beats.push(beat);
            }
            node.resources.context.sleep(pause).await;
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = round => {}
        }
    }
}

async fn store(resources: &Resources, member: &Member, number: u64) -> Option<Beat> {
    let node = resources.node_name();
    let key = keys::alive(&member.job, member.opened, member.attempt, number, &node);
    let body = format!(
        "{{\"format\":1,\"stream\":\"{}\",\"at\":\"{}\"}}\n",
        resources.stream.stream_id,
        resources.context.calendar()
    );
    match resources.create(&key, body.into()).await {
        Ok(()) => Some(Beat {
            attempt: member.id,
            key,
            at: resources.context.now(),
        }),
        Err(why) => {
            tracing::warn!(key, %why, "cannot store a heartbeat; retrying later");
            None
        }
    }
}
