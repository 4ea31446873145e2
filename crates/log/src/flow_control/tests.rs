//! Producers with bounds: exact to the step, with the reason reported, and resumed without help.

mod bounds;
mod fast_job;
mod hints;
mod slow_job;

use batchweave_core::commit_policy::{Dac, DacOptions};
use batchweave_core::flow_control::{Bound, FlowControl, JobPosition, Limits};
use batchweave_core::ids::{AttemptId, JobName, RequestId, Step, Version};
use batchweave_core::manifest::entry::{AttemptOpened, JobClosed, JobOpened};
use batchweave_core::stream::StreamOrder;
use tokio::sync::watch;

use crate::testing::distant::{CATCH_UP, Distant, PUT_ALL};
use crate::testing::prelude::*;

fn job() -> JobName {
    "llm".parse().unwrap()
}

async fn reader(store: &Arc<dyn Store>, seed: u8) -> Log {
    Log::open(Arc::clone(store), &options(seed)).await.unwrap()
}

/// Opens job `llm`; its incarnation.
async fn open_job(log: &mut Log, start: Step) -> Version {
    let request = log.new_request();
    let entry = JobOpened {
        request,
        job: job(),
        start,
        keep: 1,
        holds: true,
        paces: true,
        lease_seconds: None,
    };
    let make = |_: &_| Entry::JobOpened(entry.clone());
    log.commit_entry("test", make).await.unwrap().unwrap()
}

async fn open_attempt(log: &mut Log, opened: Version, start: Step) {
    let id = AttemptId([log.random() as u8; 16]);
    let make = |m: &batchweave_core::manifest::Manifest| {
        Entry::AttemptOpened(AttemptOpened {
            job: job(),
            opened,
            attempt: id,
            predecessor: m.jobs()[&job()].attempts.last().map(|a| a.id),
            parent: None,
            inherited: None,
            start,
            dp_size: 2,
            mesh: vec![batchweave_core::manifest::entry::Axis {
                name: "dp".into(),
                size: 2,
            }],
        })
    };
    log.commit_entry("test", make).await.unwrap();
}

/// Both coordinates of attempt 0 have received every step below `step`; one node each.
async fn publish(store: &Arc<dyn Store>, opened: Version, step: Step) {
    for at in 0..2 {
        let key = keys::progress(&job(), opened, 0, step, (at, at), "node");
        let _ = store.create(&key, "{}".into()).await.unwrap();
    }
}

/// Lets 0.1 s pass at a time until `done`.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..36_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not within an hour: {what}");
}

fn dac(seed: u64) -> Dac {
    Dac::new(DacOptions {
        seed,
        ..DacOptions::default()
    })
}

fn paced(limits: Limits) -> (watch::Sender<FlowControl>, CommitOptions) {
    let (tell, told) = watch::channel(FlowControl::new(limits));
    let options = CommitOptions {
        pace: Some(told),
        ..CommitOptions::default()
    };
    (tell, options)
}

fn at(tell: &watch::Sender<FlowControl>, opened: Version, step: Step) {
    let position = JobPosition {
        opened,
        attempt: 0,
        step,
    };
    tell.send_modify(|pace| {
        pace.positions.insert(job(), position);
    });
}

fn steps_ahead(most: u64) -> Limits {
    Limits {
        steps: Some(most),
        ..Limits::default()
    }
}

fn unbounded() -> RequestId {
    RequestId([9; 16])
}
