//! The rules of a batch entry (protocol.md, Producers 2 to 4).

use super::entry::Batch;
use super::judge::number;
use super::order;
use super::state::Manifest;
use super::void::Void;
use crate::ids::Seq;
use crate::keys;
use crate::limits::{
    ENTRY_TGBS_MAX, OBJECT_BYTES_MAX, TGB_PARTS_MAX, TGB_ROWS_MAX, TGB_TOKENS_MAX,
};
use crate::tgb::TgbRecord;

pub(super) fn judge(m: &Manifest, e: &Batch) -> Result<(), Void> {
    let state = m.writer(&e.producer, e.epoch)?;
    if m.sealed {
        return Err(Void::Sealed);
    }
    if e.first_seq != state.next_seq {
        let producer = e.producer.clone();
        return Err(Void::WrongSeq { producer, next: state.next_seq, found: e.first_seq });
    }
    number(e.last_seq)?;
    let tgbs = e.tgbs.len();
    let fits = e.last_seq.checked_sub(e.first_seq).is_some_and(|more| more + 1 == tgbs as u64);
    if !fits || tgbs > ENTRY_TGBS_MAX {
        return Err(Void::SeqRange { first: e.first_seq, last: e.last_seq, tgbs });
    }
    if e.cursor_before != state.cursor.hash() {
        return Err(Void::WrongCursor(e.producer.clone()));
    }
    if !e.cursor.fits() {
        return Err(Void::CursorTooLarge);
    }
    for seq in [e.first_seq, e.last_seq] {
        let current = m.mixture_at(&e.producer, seq);
        if e.mixture != current {
            return Err(Void::WrongMixture { seq, current, found: e.mixture });
        }
    }
    let folder = keys::data_folder(&e.producer, e.epoch, state.nonce);
    for (seq, tgb) in (e.first_seq..).zip(&e.tgbs) {
        judge_tgb(m.stream.slices, tgb).map_err(|reason| Void::BadTgb { seq, reason })?;
        tgb.parts.iter().try_for_each(|p| judge_object(&p.key, &folder, e, seq))?;
    }
    match e.first_step {
        Some(asserted) if order::step_of_next(m, &e.producer) != Some(asserted) => {
            Err(Void::WrongStep { asserted, given: order::step_of_next(m, &e.producer) })
        }
        _ => Ok(()),
    }
}

/// All TGBs of an object or none: the object's own range, which stands in its key, must lie within
/// the entry's.
fn judge_object(key: &str, folder: &str, e: &Batch, seq: Seq) -> Result<(), Void> {
    let (first, last) = key
        .strip_prefix(folder)
        .and_then(keys::data_seqs)
        .ok_or_else(|| Void::ForeignObject { key: key.to_owned() })?;
    if first < e.first_seq || last > e.last_seq || !(first..=last).contains(&seq) {
        return Err(Void::SharedObject { key: key.to_owned(), first: e.first_seq, last: e.last_seq });
    }
    Ok(())
}

fn judge_tgb(slices: u32, tgb: &TgbRecord) -> Result<(), String> {
    if tgb.rows > TGB_ROWS_MAX || tgb.tokens > TGB_TOKENS_MAX {
        return Err("its counts are impossibly large".to_owned());
    }
    if tgb.parts.is_empty() || tgb.parts.len() > TGB_PARTS_MAX {
        return Err(format!("it must have 1 to {TGB_PARTS_MAX} parts, not {}", tgb.parts.len()));
    }
    let mut next = 0_u32;
    for part in &tgb.parts {
        if part.first_slice != next || part.slices == 0 {
            return Err(format!("its parts do not cover the slices in order at slice {next}"));
        }
        next = next.checked_add(part.slices).ok_or("its parts hold too many slices")?;
        let end = part.offset.checked_add(part.length).filter(|end| *end <= OBJECT_BYTES_MAX);
        if part.length == 0 || end.is_none() {
            return Err("a part is empty or reaches beyond what an object can hold".to_owned());
        }
        if let Some(frame) = part.frame_bytes
            && frame.checked_mul(u64::from(part.slices)).is_none_or(|all| all > part.length)
        {
            return Err("its frames are larger than their part".to_owned());
        }
    }
    if next != slices {
        return Err(format!("it has {next} slices, the stream {slices}"));
    }
    if let Some(provenance) = &tgb.provenance
        && provenance.len() > 1024
    {
        return Err("its provenance key is too long".to_owned());
    }
    Ok(())
}
