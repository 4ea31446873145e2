//! The rules of a batch entry (protocol.md, Producers 2 to 4).

use super::{levels, number};
use crate::guards;
use crate::ids::Seq;
use crate::keys;
use crate::limits::ENTRY_TGBS_MAX;
use crate::manifest::entry::BatchEntry;
use crate::manifest::order;
use crate::manifest::state::Manifest;
use crate::manifest::void::Void;
use crate::tgb::TgbRecord;

pub(super) fn validate(m: &Manifest, e: &BatchEntry) -> Result<(), Void> {
    let state = m.writer(&e.producer, e.epoch)?;
    if m.sealed {
        return Err(Void::Sealed);
    }
    let any = guards::skips_sequence_check();
    if e.first_seq != state.next_seq && !any {
        let producer = e.producer.clone();
        return Err(Void::WrongSeq {
            producer,
            next: state.next_seq,
            found: e.first_seq,
        });
    }
    number(e.last_seq)?;
    let tgbs = e.tgbs.len();
    let fits = e
        .last_seq
        .checked_sub(e.first_seq)
        .is_some_and(|more| more + 1 == tgbs as u64);
    if !fits || tgbs > ENTRY_TGBS_MAX {
        return Err(Void::SeqRange {
            first: e.first_seq,
            last: e.last_seq,
            tgbs,
        });
    }
    number((m.next_step + m.waiting() as u64).saturating_add(tgbs as u64))?;
    if e.cursor_before != state.cursor.hash() && !any {
        return Err(Void::WrongCursor(e.producer.clone()));
    }
    levels(&e.cursor.0)?;
    if !e.cursor.fits() {
        return Err(Void::CursorTooLarge);
    }
    for seq in [e.first_seq, e.last_seq] {
        let current = m.mixture_at(&e.producer, seq);
        if e.mixture != current {
            return Err(Void::WrongMixture {
                seq,
                current,
                found: e.mixture,
            });
        }
    }
    validate_stage(m, e)?;
    let folder = keys::data_folder(&e.producer, e.epoch, state.nonce);
    for (seq, tgb) in (e.first_seq..).zip(&e.tgbs) {
        validate_tgb(m.stream.slices, tgb)
            .and_then(|()| validate_rows(m, e.stage, tgb))
            .map_err(|reason| Void::BadTgb { seq, reason })?;
        tgb.parts
            .iter()
            .filter(|_| !guards::skips_epoch_check())
            .try_for_each(|p| validate_object(&p.key, &folder, e, seq))?;
    }
    match e.first_step {
        Some(asserted) if order::step_of_next(m, &e.producer) != Some(asserted) => {
            Err(Void::WrongStep {
                asserted,
                given: order::step_of_next(m, &e.producer),
            })
        }
        _ => Ok(()),
    }
}

/// Checks that the entry's stage is in force at its numbers.
fn validate_stage(m: &Manifest, e: &BatchEntry) -> Result<(), Void> {
    for seq in [e.first_seq, e.last_seq] {
        let current = m.stage_at(&e.producer, seq);
        if e.stage != current && !guards::skips_stage_check() {
            return Err(Void::WrongStage {
                seq,
                current,
                found: e.stage,
            });
        }
    }
    Ok(())
}

/// Checks the rows of a TGB of a stage. Those of stage 0 are not checked, since older releases did not.
fn validate_rows(m: &Manifest, stage: u64, tgb: &TgbRecord) -> Result<(), String> {
    let Some(shape) = m.stages.all.get(&stage) else {
        return Ok(());
    };
    let rows = u64::from(m.stream.slices) * u64::from(shape.rows_per_slice);
    if tgb.rows == rows || guards::skips_stage_check() {
        return Ok(());
    }
    Err(format!(
        "it has {} rows, and a batch of stage {stage} has {rows}",
        tgb.rows
    ))
}

/// Checks that an entry commits all TGBs of an object or none: the object's own range, which its key holds,
/// must lie within the entry's.
fn validate_object(key: &str, folder: &str, e: &BatchEntry, seq: Seq) -> Result<(), Void> {
    let (first, last) = key
        .strip_prefix(folder)
        .and_then(keys::data_seqs)
        .ok_or_else(|| Void::ForeignObject {
            key: key.to_owned(),
        })?;
    let whole = (first >= e.first_seq && last <= e.last_seq) || guards::splits_objects();
    let right = (whole && (first..=last).contains(&seq)) || guards::skips_object_range_check();
    if !right {
        return Err(Void::SharedObject {
            key: key.to_owned(),
            first: e.first_seq,
            last: e.last_seq,
        });
    }
    Ok(())
}

/// The most bytes of a provenance key.
const PROVENANCE_BYTES_MAX: usize = 1024;

fn validate_tgb(slices: u32, tgb: &TgbRecord) -> Result<(), String> {
    tgb.check(slices).map_err(|broken| broken.to_string())?;
    match &tgb.provenance {
        Some(key) if key.len() > PROVENANCE_BYTES_MAX => {
            Err("its provenance key is too long".to_owned())
        }
        _ => Ok(()),
    }
}
