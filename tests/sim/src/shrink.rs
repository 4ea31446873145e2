//! Makes a failing plan smaller: removes crashes, freezes, faults, readers, producers and TGBs one by
//! one while the plan still breaks the same rule.

use crate::check::check;
use crate::evidence::Evidence;
use crate::evidence::Violation;
use crate::plan::Plan;
use crate::plan::lifecycle::AttemptEnd;
use crate::plan::lifecycle::LifecyclePlan;
use crate::plan::operator::OperatorCommand;
use crate::world::run;

/// The usual limit of runs.
pub const RUNS_MAX: usize = 400;

/// The smallest plan found, its evidence and its violations.
#[derive(Debug)]
pub struct Smallest {
    /// The evidence of the smallest plan's run.
    pub evidence: Evidence,
    /// The rules that it broke.
    pub violations: Vec<Violation>,
    /// The number of runs that the search took.
    pub runs: usize,
}

/// Shrinks the plan of a failing run in at most `runs_max` runs.
pub fn shrink(
    evidence: Evidence,
    violations: Vec<Violation>,
    runs_max: usize,
) -> std::io::Result<Smallest> {
    let rule = violations.first().map_or("", |v| v.check);
    let mut best = Smallest {
        evidence,
        violations,
        runs: 0,
    };
    'again: loop {
        for smaller in candidates(&best.evidence.plan) {
            if best.runs >= runs_max {
                return Ok(best);
            }
            best.runs += 1;
            let evidence = run(&smaller)?;
            let violations = check(&evidence);
            if violations.iter().any(|v| v.check == rule) {
                (best.evidence, best.violations) = (evidence, violations);
                continue 'again;
            }
        }
        return Ok(best);
    }
}

/// Returns plans that are smaller by one piece, large pieces first.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Plan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        if smaller != *plan {
            all.push(smaller);
        }
    };
    if plan.producers.len() > 1 {
        without_each(plan.producers.len(), |p| &mut p.producers, &mut with);
    }
    with(&|p| p.readers.clear());
    with(&|p| p.freezes.clear());
    with(&|p| p.crashes.clear());
    with(&|p| p.sealed_at = None);
    with(&|p| p.twins.clear());
    with(&|p| p.mischief.clear());
    without_each(plan.mischief.len(), |p| &mut p.mischief, &mut with);
    with(&|p| p.acts.clear());
    fewer_acts(plan, &mut with);
    without_each(plan.freezes.len(), |p| &mut p.freezes, &mut with);
    without_each(plan.crashes.len(), |p| &mut p.crashes, &mut with);
    without_each(plan.readers.len(), |p| &mut p.readers, &mut with);
    if let Some(life) = &plan.life {
        less_life(life, &mut with);
    }
    fewer_faults(&mut with);
    for i in 0..plan.producers.len() {
        with(&|p| p.producers[i].tgbs = p.producers[i].tgbs.div_ceil(2));
        with(&|p| p.producers[i].tgbs = (p.producers[i].tgbs - 1).max(1));
        with(&|p| p.producers[i].shared = 1);
        with(&|p| p.producers[i].slow = 1.0);
        with(&|p| p.producers[i].skew = crate::clock::Skew::default());
    }
    all
}

/// Applies a change and keeps the resulting plan.
type Keep<'a> = dyn FnMut(&dyn Fn(&mut Plan)) + 'a;

/// Offers the plan without one item of a list, for each of its items.
fn without_each<T>(count: usize, list: fn(&mut Plan) -> &mut Vec<T>, with: &mut Keep<'_>) {
    for i in 0..count {
        with(&|p| {
            list(p).remove(i);
        });
    }
}

fn fewer_acts(plan: &Plan, with: &mut Keep<'_>) {
    for (i, (_, act)) in plan.acts.iter().enumerate() {
        // A seal and its unseal stay together.
        if !matches!(act, OperatorCommand::Seal | OperatorCommand::Unseal) {
            with(&|p| {
                p.acts.remove(i);
            });
        }
    }
}

fn fewer_faults(with: &mut Keep<'_>) {
    with(&|p| p.rates = crate::store::outcome::Rates::default());
    with(&|p| p.link.bytes_per_second = None);
    with(&|p| p.link.bad_connections = 0);
    with(&|p| p.link.lies = 0);
    with(&|p| p.rates.lost_answer = 0);
    with(&|p| p.rates.lost_request = 0);
    with(&|p| p.rates.late = 0);
    with(&|p| p.rates.reset = 0);
    with(&|p| p.rates.conflict = 0);
    with(&|p| p.rates.throttled = 0);
    with(&|p| p.rates.server = 0);
    with(&|p| p.rates.refused = 0);
    with(&|p| p.rates.own_412 = 0);
    with(&|p| p.rates.read = 0);
}

/// Applies a change to the lifecycle.
fn life(plan: &mut Plan, change: impl FnOnce(&mut LifecyclePlan)) {
    if let Some(life) = &mut plan.life {
        change(life);
    }
}

fn less_life(now: &LifecyclePlan, with: &mut Keep<'_>) {
    for i in 0..now.jobs.len() {
        with(&|p| life(p, |l| drop(l.jobs.remove(i))));
    }
    for i in 0..now.reclaimers.len() {
        with(&|p| life(p, |l| drop(l.reclaimers.remove(i))));
    }
    with(&|p| life(p, |l| l.deeds.clear()));
    with(&|p| life(p, |l| l.ahead = None));
    for i in 0..now.deeds.len() {
        with(&|p| {
            life(p, |l| {
                l.deeds.remove(i);
            })
        });
    }
    for (i, job) in now.jobs.iter().enumerate() {
        with(&|p| life(p, |l| l.jobs[i].attempts.clear()));
        for j in 0..job.attempts.len() {
            with(&|p| life(p, |l| drop(l.jobs[i].attempts.remove(j))));
            with(&|p| life(p, |l| l.jobs[i].attempts[j].fate = AttemptEnd::Crash));
            with(&|p| life(p, |l| l.jobs[i].attempts[j].dp_size = 1));
            with(&|p| life(p, |l| l.jobs[i].attempts[j].stalls.clear()));
        }
        with(&|p| life(p, |l| l.jobs[i].lease_seconds = None));
        with(&|p| life(p, |l| l.jobs[i].abandons = None));
        with(&|p| life(p, |l| l.jobs[i].rank0 = false));
    }
    for i in 0..now.reclaimers.len() {
        with(&|p| life(p, |l| l.reclaimers[i].deaths.clear()));
        with(&|p| life(p, |l| l.reclaimers[i].stalls.clear()));
        with(&|p| life(p, |l| l.reclaimers[i].dawdles = 0));
    }
}
