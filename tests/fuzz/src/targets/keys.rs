//! Keys, as listings return them.

use batchweave_core::ids::{AttemptId, CommitId, Hash, JobName, ProducerName, StreamId};
use batchweave_core::inputs::LinkId;
use batchweave_core::intent;
use batchweave_core::keys;
use batchweave_core::retention::AttemptObjects;
use batchweave_core::retention::reclaim::{Reclaim, ReferencedObjects};

use crate::check::{manifest, stream_id};

/// Coordinates of the mesh: each progress names some, whatever its length.
const READERS: u32 = 64;

/// One key per line: its content, and its fate by the golden log.
pub(super) fn keys(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let state = manifest();
    let reclaim = Reclaim::by(state);
    let named = ReferencedObjects::from_manifest(state, state.watermark());
    let mut signs = AttemptObjects::default();
    let mut listed = Vec::new();
    let mut announced = Vec::new();
    for key in text.lines() {
        named_again(key);
        signs.note(key, READERS, u64::MAX);
        signs.note(key, READERS, state.next_step());
        let fates = [
            reclaim.data(key, &named),
            reclaim.upload(key),
            reclaim.inputs(key, |_| None),
            reclaim.intent(key),
            reclaim.segment(key),
            reclaim.job(key, None),
        ];
        assert!(fates.len() == 6 && keys::bytes_max(key) > 0);
        listed.extend(keys::snapshot_version(key));
        announced.push((key.to_owned(), key.len() as u64));
    }
    let dead = reclaim.snapshots(&listed);
    assert!(dead.len() <= listed.len());
    let own = state.stream().producers.first();
    for start in [0, 1, u64::MAX] {
        if let Some(own) = own {
            let chosen = intent::select(state, &announced, own, start);
            assert!(chosen.odd.len() + chosen.dead.len() <= announced.len());
        }
    }
    let _ = (signs.complete_marks(READERS), signs.incomplete(READERS));
    positions(&signs);
}

/// Reads every attempt's position and every job's floor from the objects that were seen.
fn positions(signs: &AttemptObjects) {
    for job in manifest().jobs().values() {
        for attempt in &job.attempts {
            let _ = signs.position(attempt);
        }
        let all = [(0, signs.clone()), (1, signs.clone())].into();
        let _ = batchweave_core::retention::floor(job, &all);
    }
}

/// A key that is parsed equals the key made from the parsed parts; the same holds for ids.
fn named_again(key: &str) {
    if let Some(mark) = keys::parse_mark(key) {
        let o = &mark.owner;
        let again = keys::mark(&o.job, o.opened, o.attempt, mark.step, mark.coordinate);
        assert_eq!(again, key);
    }
    if let Some(p) = keys::parse_progress(key) {
        let (o, range) = (&p.owner, (p.first, p.last));
        let again = keys::progress(&o.job, o.opened, o.attempt, p.step, range, &p.node);
        assert_eq!(again, key);
    }
    if let Some(a) = keys::parse_alive(key) {
        let o = &a.owner;
        assert_eq!(
            keys::alive(&o.job, o.opened, o.attempt, a.beat, &a.node),
            key
        );
    }
    if let Some(l) = keys::parse_ledger(key) {
        let o = &l.owner;
        let again = keys::ledger(&o.job, o.opened, o.attempt, l.first, &l.node, l.number);
        assert_eq!(again, key);
    }
    if let Some(v) = keys::parse_values(key) {
        let o = &v.owner;
        let again = keys::values(
            &o.job,
            o.opened,
            o.attempt,
            (v.first, v.last),
            &v.node,
            v.number,
        );
        assert_eq!(again, key);
    }
    if let Some(o) = keys::parse_owner(key) {
        assert!(key.starts_with(&keys::attempt_folder(&o.job, o.opened, o.attempt)));
    }
    if let Some((producer, link)) = keys::parse_inputs(key) {
        assert_eq!(keys::inputs(&producer, &link), key);
    }
    numbered_again(key);
    let name = key.rsplit('/').next().unwrap_or_default();
    let _ = (keys::data_seqs(name), keys::provenance_seqs(name));
    ids(name);
}

/// The round trip of [`named_again`] for keys that are a version or a number.
fn numbered_again(key: &str) {
    if let Some(version) = keys::snapshot_version(key) {
        assert_eq!(keys::snapshot(version), key);
    }
    if let Some(version) = keys::repair_version(key) {
        assert_eq!(keys::repair(version), key);
    }
    if let Some(number) = keys::segment_number(key) {
        assert_eq!(keys::segment(number), key);
    }
}

fn ids(text: &str) {
    fn one<T: std::str::FromStr + ToString>(text: &str) {
        if let Ok(id) = text.parse::<T>() {
            assert_eq!(id.to_string(), text);
        }
    }
    one::<StreamId>(text);
    one::<AttemptId>(text);
    one::<CommitId>(text);
    one::<Hash>(text);
    one::<JobName>(text);
    one::<ProducerName>(text);
    one::<LinkId>(text);
}

/// The key of an intent, and the copy that it carries.
pub(super) fn intent(input: &[u8]) {
    let key = String::from_utf8_lossy(input);
    let stem = intent::stem(&key);
    let (whole, short) = (keys::parse_intent(&key), keys::parse_intent(&stem));
    if whole.is_some() {
        assert_eq!(whole, short, "what a key says with and without its copy");
    }
    if let Some(Ok(bytes)) = intent::carried(&key) {
        let sealed = crate::seal::json(&bytes);
        for bytes in [&bytes[..], &sealed] {
            if let Ok(entry) = intent::decode(&key, bytes, stream_id()) {
                super::objects::announced(&entry);
            }
        }
    }
}
