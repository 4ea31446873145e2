//! The rules of a stage.

use super::{levels, number, text};
use crate::guards;
use crate::ids::{ProducerName, Seq};
use crate::limits::STAGES_MAX;
use crate::manifest::entry::Stage;
use crate::manifest::stages::Changes;
use crate::manifest::state::Manifest;
use crate::manifest::void::Void;
use crate::stream::StreamOrder;

pub(super) fn validate(m: &Manifest, e: &Stage) -> Result<(), Void> {
    let current = m.stages.newest();
    if e.id != current + 1 {
        let found = e.id;
        return Err(Void::StageOrder { current, found });
    }
    if e.id > STAGES_MAX {
        return Err(Void::StageCount { limit: STAGES_MAX });
    }
    text(&e.form)?;
    if e.seq_len == 0 || e.rows_per_slice == 0 {
        return Err(Void::StageShape);
    }
    if let Some(mixture) = &e.mixture {
        levels(&mixture.spec)?;
        if mixture.id != m.mixture.id + 1 {
            return Err(Void::MixtureOrder {
                current: m.mixture.id,
                found: mixture.id,
            });
        }
    }
    if let Some(missing) = producers(m).find(|name| !e.from.contains_key(*name))
        && !guards::accepts_partial_stage()
    {
        return Err(Void::StageProducers(missing.clone()));
    }
    e.from
        .iter()
        .try_for_each(|(name, &seq)| begin(m, e, name, seq))
}

/// Returns the producers that a stage must name: all that were opened and have not finished; the lanes that were never opened.
fn producers(m: &Manifest) -> impl Iterator<Item = &ProducerName> {
    let open = m.producers.iter().filter(|(_, p)| !p.finished);
    let lanes =
        m.stream.producers.iter().filter(|name| {
            m.stream.order == StreamOrder::Lanes && m.producers.get(*name).is_none()
        });
    open.map(|(name, _)| name).chain(lanes)
}

/// Checks the number from which the stage, and its mixture, are in force for a producer.
fn begin(m: &Manifest, e: &Stage, name: &ProducerName, seq: Seq) -> Result<(), Void> {
    number(seq)?;
    let (next, changes) = match m.producers.get(name) {
        Some(p) if p.finished => return Err(Void::Finished(name.clone())),
        Some(p) => {
            let (stages, mixtures) = (p.stages.clone(), p.mixtures.clone());
            (p.next_seq, Changes { stages, mixtures })
        }
        None if m.stream.order == StreamOrder::Lanes && m.lanes.allows(name) => {
            (0, m.stages.of_unopened(name))
        }
        None => return Err(Void::NotOpened(name.clone())),
    };
    let set = changes.stages.keys().next_back().copied().unwrap_or(0);
    if (seq < next || seq < set) && !guards::accepts_late_stage() {
        let producer = name.clone();
        return Err(Void::StageTooLate {
            producer,
            next: next.max(set),
            found: seq,
        });
    }
    let mixed = changes.mixtures.keys().next_back().copied().unwrap_or(0);
    if e.mixture.is_some() && seq < mixed {
        let producer = name.clone();
        return Err(Void::MixtureTooLate {
            producer,
            next: next.max(mixed),
            found: seq,
        });
    }
    Ok(())
}
