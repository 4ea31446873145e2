//! Starts all actors of a lifecycle world, and the last pass when they have ended.

use std::sync::Arc;
use std::time::Duration;

use super::{RECLAIMER, driver, job_supervisor, reclaimer};
use crate::actor::Nature;
use crate::plan::lifecycle::LifecyclePlan;
use crate::world::person::Person;
use crate::world::shared::Shared;

/// The interval of checks whether all input is committed.
const LOOK: Duration = Duration::from_millis(200);
/// No write takes effect later than this after it was sent.
const LANDED: Duration = Duration::from_mins(1);

/// Runs jobs, reclaimers and people beside the producers.
pub(crate) async fn run(shared: Arc<Shared>, plan: LifecyclePlan) {
    let person = Person::new(&shared, "person");
    let people = tokio::spawn(person.act(plan.deeds));
    let drivers = plan.jobs.iter().flat_map(|job| {
        let own = job.drivers.iter().enumerate();
        own.map(|(n, plan)| driver::supervise(Arc::clone(&shared), job.number, n, plan.clone()))
    });
    let drivers: Vec<_> = drivers.map(tokio::spawn).collect();
    let jobs = plan.jobs.into_iter();
    let jobs: Vec<_> = jobs
        .map(|job| tokio::spawn(job_supervisor::supervise(Arc::clone(&shared), job)))
        .collect();
    let reclaimers = plan.reclaimers.into_iter();
    let reclaimers: Vec<_> = reclaimers
        .map(|plan| tokio::spawn(reclaimer::supervise(Arc::clone(&shared), plan)))
        .collect();
    let counts = tokio::spawn(count(Arc::clone(&shared)));
    for done in jobs.into_iter().chain([people, counts]) {
        joined(&shared, done).await;
    }
    shared.set_trained();
    for done in reclaimers.into_iter().chain(drivers) {
        joined(&shared, done).await;
    }
}

/// Publishes the end of the stream to the ranks, once all input is committed.
async fn count(shared: Arc<Shared>) {
    let person = Person::new(&shared, "counter");
    while !shared.done() {
        person.sleep(LOOK).await;
    }
    loop {
        match person.log().await {
            Ok(log) => return shared.set_end(log.manifest().next_step()),
            Err(_) => person.sleep(LOOK).await,
        }
    }
}

async fn joined(shared: &Shared, task: tokio::task::JoinHandle<()>) {
    if let Err(e) = task.await {
        shared.found("panic", 0, e.to_string());
    }
}

/// Runs one pass without faults after all actors have ended.
pub(crate) async fn quiet(shared: &Arc<Shared>) {
    let time = shared.store.time;
    let calm = shared.plan.calm_at.max(time.now());
    time.sleep_until(calm + LANDED).await;
    let name = format!("{RECLAIMER}-at-the-end");
    let person = Person::with(shared, &name, Nature::default());
    if let Err(e) = reclaimer::once(&person, |_| None).await {
        reclaimer::found(&person, &e);
    }
}
