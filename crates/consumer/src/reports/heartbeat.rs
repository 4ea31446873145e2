//! Heartbeats: while ranks of a job with a lease are connected, an object says so, whether they make
//! progress or not. A trainer that evaluates for hours, or waits for producers, keeps its lease.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::AttemptId;
use batchweave_core::keys;
use tokio_util::sync::CancellationToken;

use crate::job::marks::put;
use crate::job::membership::Member;
use crate::node::{Hub, hex};

/// Bounds of the time between two looks at who is connected.
const LOOKS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// Heartbeats per lease.
const BEATS: u32 = 4;

/// The last heartbeat for one attempt.
struct Beat {
    attempt: AttemptId,
    key: String,
    at: Duration,
}

/// Stores heartbeats until `stop`.
pub(crate) async fn report(hub: Arc<Hub>, stop: CancellationToken) {
    let (mut beats, mut number): (Vec<Beat>, u64) = (Vec::new(), 0);
    loop {
        let leased = { hub.lock().leased() };
        let shortest = leased.iter().map(|(_, lease)| *lease / BEATS).min();
        let pause = shortest.unwrap_or(LOOKS.1).clamp(LOOKS.0, LOOKS.1);
        let round = async {
            for (member, lease) in &leased {
                let own = |beat: &Beat| beat.attempt == member.id;
                let last = beats.iter().position(own);
                let due = |beat: &Beat| hub.context.since(beat.at) >= *lease / BEATS;
                if last.is_some_and(|at| !due(&beats[at])) {
                    continue;
                }
                number += 1;
                let Some(beat) = store(&hub, member, number).await else {
                    continue;
                };
                if let Some(old) = last.map(|at| beats.swap_remove(at))
                    && let Err(why) = hub.store.delete(&old.key).await
                {
                    // The reclaimer takes it.
                    tracing::debug!(key = old.key, %why, "an older heartbeat could not be deleted");
                }
                beats.push(beat);
            }
            hub.context.sleep(pause).await;
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = round => {}
        }
    }
}

async fn store(hub: &Hub, member: &Member, number: u64) -> Option<Beat> {
    let node = hex(&hub.instance);
    let key = keys::alive(&member.job, member.opened, member.attempt, number, &node);
    let body = format!(
        "{{\"format\":1,\"stream\":\"{}\",\"at\":\"{}\"}}\n",
        hub.stream.stream_id,
        hub.context.calendar()
    );
    match put(hub, &key, body.into()).await {
        Ok(()) => Some(Beat {
            attempt: member.id,
            key,
            at: hub.context.now(),
        }),
        Err(why) => {
            tracing::warn!(key, %why, "cannot store a heartbeat; trying again later");
            None
        }
    }
}
