//! What must hold after every fold and in every snapshot that is read.
//!
//! - I1 the open segment holds exactly the steps from its first to the head, in order;
//! - I2 the watermark is not above the head;
//! - I3 waiting TGBs exist under `lanes` only, and per lane end just before the next sequence;
//! - I4 under `lanes` the turn names a lane, and that lane has nothing waiting (unless sealed);
//! - I5 open producers have an epoch of at least 1 and lie before the head of the log;
//! - I6 attempts of a job are numbered 0, 1, 2, ... and opened in the order of the log.

use super::order;
use super::state::Manifest;
use crate::stream::Order;

/// The first invariant that is broken, in words.
pub(super) fn check(m: &Manifest) -> Result<(), String> {
    let open = m.open_steps.iter().map(|s| s.step);
    if !open.eq(m.first_open_step()..m.next_step) {
        return Err(
            "I1: the open segment does not reach from its first step to the head".to_owned(),
        );
    }
    if m.watermark > m.next_step {
        return Err(format!(
            "I2: watermark {} is above the head {}",
            m.watermark, m.next_step
        ));
    }
    check_waiting(m)?;
    for (name, p) in &m.producers {
        if p.epoch == 0 || p.opened >= m.next_version {
            return Err(format!(
                "I5: producer {name} has epoch {} from version {}",
                p.epoch, p.opened
            ));
        }
    }
    for (name, job) in &m.jobs {
        let numbered = job
            .attempts
            .iter()
            .map(|a| a.number)
            .eq(0..job.attempts.len() as u64);
        let in_order = job.attempts.windows(2).all(|w| w[0].opened <= w[1].opened);
        if !numbered || !in_order {
            return Err(format!("I6: the attempts of job {name} are out of order"));
        }
    }
    Ok(())
}

fn check_waiting(m: &Manifest) -> Result<(), String> {
    if m.stream.order == Order::Arrival && !m.waiting.is_empty() {
        return Err("I3: TGBs wait for a turn under order = arrival".to_owned());
    }
    for (name, tgbs) in &m.waiting {
        let next = m.producers.get(name).map_or(0, |p| p.next_seq);
        let count = tgbs.len() as u64;
        if count == 0 || count > next || !tgbs.keys().copied().eq(next - count..next) {
            return Err(format!(
                "I3: what waits of lane {name} does not end at its next sequence"
            ));
        }
    }
    if m.stream.order == Order::Lanes {
        let lane = order::lane_at(m, m.turn).ok_or("I4: the turn names no lane")?;
        if !m.sealed && m.waiting.contains_key(lane) {
            return Err(format!(
                "I4: lane {lane} has its turn and TGBs, but no step"
            ));
        }
    }
    Ok(())
}
