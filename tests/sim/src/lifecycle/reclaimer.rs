//! The real reclaimer in a process that is killed, frozen, or slow between planning and deleting.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::Step;
use batchweave_log::reclaim::{Limits, ReclaimError, Reclaimer};

use super::RECLAIMER;
use crate::actor::Nature;
use crate::plan::lifecycle::ReclaimerPlan;
use crate::world::person::Person;
use crate::world::shared::Shared;

/// The time from the death of a process to the start of the next.
const RESTART: Duration = Duration::from_millis(500);

/// Runs one reclaimer process after another until all jobs have read their steps.
pub(super) async fn supervise(shared: Arc<Shared>, plan: ReclaimerPlan) {
    for process in 0.. {
        let nature = Nature {
            dies: plan.deaths.get(process).copied(),
            stalls: plan.stalls.clone(),
            ..Nature::default()
        };
        let name = format!("{RECLAIMER}{}#{process}", plan.number);
        let person = Person::with(&shared, &name, nature);
        let actor = Arc::clone(&person.actor);
        let died = tokio::select! {
            biased;
            () = actor.died() => true,
            () = passes(&person, &plan) => false,
        };
        if !died {
            return;
        }
        shared.store.note(&actor, "died");
        shared.store.time.sleep(RESTART).await;
    }
}

async fn passes(person: &Person, plan: &ReclaimerPlan) {
    while !person.shared.trained() {
        match several(person, plan).await {
            Ok(()) => {}
            Err(ReclaimError::Log(e)) if person.shared.may_pass(&e) => {
                person.sleep(RESTART).await;
            }
            Err(e) => return found(person, &e),
        }
    }
}

pub(super) fn found(person: &Person, error: &ReclaimError) {
    let text = format!("{} stopped: {error}", person.actor.name);
    let actor = person.actor.id;
    person.shared.found("reclaimer-error", actor, text);
}

async fn several(person: &Person, plan: &ReclaimerPlan) -> Result<(), ReclaimError> {
    let mut log = person.log().await?;
    let mut reclaimer = Reclaimer::new();
    let limits = Limits {
        max_delete: plan.max_delete,
    };
    while !person.shared.trained() {
        person.sleep(plan.every).await;
        if person.chance(500) {
            reclaimer.pass(&mut log, limits).await?;
            continue;
        }
        let todo = reclaimer.plan(&mut log, None).await?;
        if person.chance(plan.dawdles) {
            let share = person.actor.draw(crate::draw::Draw::unit);
            person.sleep(plan.dawdle.mul_f64(share)).await;
        }
        reclaimer.apply(&mut log, &todo, limits).await?;
    }
    Ok(())
}

/// Runs one pass without limits; `to` returns the watermark that a person asks for, from the head.
pub(super) async fn once(
    person: &Person,
    to: impl Fn(Step) -> Option<Step>,
) -> Result<(), ReclaimError> {
    let mut log = person.log().await?;
    let mut reclaimer = Reclaimer::new();
    let to = to(log.manifest().next_step());
    let todo = reclaimer.plan(&mut log, to).await?;
    reclaimer.apply(&mut log, &todo, Limits::default()).await?;
    Ok(())
}
