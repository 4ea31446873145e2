//! The writer: it opens a job with an attempt of all nodes, then commits steps at a rate.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{AttemptId, RequestId};
use batchweave_core::keys;
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{AttemptOpened, JobOpened};
use batchweave_core::tgb::TgbRecord;
use batchweave_log::{
    CommitItem, CommitOptions, Committer, Log, LogError, LogOptions, OpenOutcome,
};

use super::shared::Shared;
use crate::actor::{Actor, Nature};
use crate::draw::Draw;
use crate::policy::{AnyPolicy, PolicyKind};
use crate::world::content::{cursor, tgbs};
use crate::world::shared::name;

fn options(actor: &Arc<Actor>) -> LogOptions {
    LogOptions {
        seed: actor.draw(Draw::seed),
        write_snapshots: true,
        clock: actor.clock(),
        shared_fold: None,
    }
}

/// Opens the job and its attempt, from which the nodes know their number.
pub(super) async fn open_attempt(shared: &Arc<Shared>) -> Result<(), LogError> {
    let actor = shared.store.actor("trainer", Nature::default());
    let mut log = Log::open(shared.store.handle(&actor), &options(&actor)).await?;
    let Ok(job) = "train".parse::<batchweave_core::ids::JobName>() else {
        return Ok(());
    };
    let opened = JobOpened {
        request: RequestId([1; 16]),
        job: job.clone(),
        start: 0,
        keep: 1,
        holds: true,
        paces: false,
        lease_seconds: None,
    };
    log.commit_entry("trainer", |_| Entry::JobOpened(opened.clone()))
        .await?;
    let attempt = |opened| AttemptOpened {
        job: job.clone(),
        opened,
        attempt: AttemptId([1; 16]),
        predecessor: None,
        parent: None,
        inherited: None,
        start: 0,
        dp_size: shared.plan.nodes,
        mesh: Vec::new(),
    };
    log.commit_entry("trainer", |m| {
        Entry::AttemptOpened(attempt(m.jobs().get(&job).map_or(0, |job| job.opened)))
    })
    .await?;
    Ok(())
}

/// Commits one step after another until it is dropped.
pub(super) async fn produce(shared: Arc<Shared>) -> Result<(), LogError> {
    let actor = shared.store.actor("p0", Nature::default());
    let log = Log::open(shared.store.handle(&actor), &options(&actor)).await?;
    let seed = actor.draw(|d| d.range(0..u64::MAX));
    let mut policy = AnyPolicy::new(PolicyKind::Dac, seed);
    let opening = Committer::open_with(log, name(0), "p0", &mut policy).await?;
    let OpenOutcome::Opened(producer) = opening else {
        return Ok(());
    };
    let (epoch, nonce) = (producer.epoch(), producer.nonce());
    let queue = producer.spawn(policy, CommitOptions::default());
    let gap = Duration::from_secs_f64(1.0 / shared.plan.rate);
    let mut next = shared.begin().await;
    for seq in 0.. {
        next += gap.mul_f64(0.5 + actor.draw(Draw::unit));
        shared.store.time.sleep_until(next).await;
        let key = keys::data(&name(0), epoch, nonce, (seq, seq), 0, 0);
        let item = CommitItem {
            tgbs: slices(tgbs(&name(0), &key, seq, 1), shared.plan.nodes),
            cursor: cursor(seq + 1),
            mixture: None,
            stage: 0,
        };
        if !queue.submit(item).await {
            break;
        }
    }
    Ok(())
}

/// Returns the records with this many slices, one per node.
fn slices(mut tgbs: Vec<TgbRecord>, slices: u32) -> Vec<TgbRecord> {
    for tgb in &mut tgbs {
        tgb.rows = slices.into();
        tgb.tokens = u64::from(slices) * 8;
        for part in &mut tgb.parts {
            (part.slices, part.length) = (slices, u64::from(slices) * 256);
            (part.frame_bytes, part.index) = (Some(256), None);
        }
    }
    tgbs
}
