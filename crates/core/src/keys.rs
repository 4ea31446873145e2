//! Every key of the store. Prefixes end in `/`. Numbers are padded so that listings for people sort;
//! nothing relies on the order of a LIST.

mod class;
mod jobs;

pub use class::class_of;
pub use jobs::{
    AliveKey, LedgerKey, MarkKey, Owner, ProgressKey, ValuesKey, alive, attempt_folder, job_folder,
    ledger, ledgers, mark, marks, parse_alive, parse_ledger, parse_mark, parse_owner,
    parse_progress, parse_values, progress, progress_of, values, values_of,
};

use crate::ids::{Epoch, Hash, Nonce, ProducerName, Seq, Version};
use crate::inputs::LinkId;
use crate::limits::{
    BUNDLE_BYTES_MAX, FORK_BYTES_MAX, INPUTS_LINK_BYTES_MAX, INTENT_BYTES_MAX, LEDGER_BYTES_MAX,
    MARK_BYTES_MAX, NUMBER_MAX, OTHER_BYTES_MAX, PROGRESS_BYTES_MAX, PROVENANCE_OBJECT_BYTES_MAX,
    RECORD_READ_MAX, REPAIR_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_STEPS, SNAPSHOT_BYTES_MAX,
    STREAM_BYTES_MAX, TOKENIZER_BYTES_MAX, VALUES_BYTES_MAX,
};
use jobs::plain as number;

/// The stream's identity and parameters.
pub const STREAM: &str = "stream.json";
/// Marks a stream that is being deleted: the first object of a deletion, and the last one that it deletes.
pub const DELETING: &str = "deleting.json";
/// The state with which a fork begins.
pub const FORK: &str = "fork.json";
/// Prefix of all snapshots.
pub const SNAPSHOTS: &str = "snapshots/";
/// Prefix of all repairs.
pub const REPAIRS: &str = "repairs/";
/// Prefix of all data objects.
pub const DATA: &str = "data/";
/// Prefix of all intents.
pub const INTENTS: &str = "intents/";
/// Prefix of all index segments.
pub const INDEX: &str = "index/";
/// Prefix of all bundles.
pub const BUNDLES: &str = "index/bundles/";
/// Prefix of all input lists.
pub const INPUTS: &str = "inputs/";
/// Prefix of the stored tokenizer file.
pub const TOKENIZERS: &str = "tokenizers/";
/// Prefix of the objects of all jobs.
pub const JOBS: &str = "jobs/";
/// Prefix of the log, which only `batchweave delete` lists and deletes from.
pub const LOG: &str = "log/";

/// Classes by which requests are counted: the first name of every key, without its ending.
pub const CLASSES: [&str; 11] = [
    "log",
    "data",
    "intents",
    "snapshots",
    "index",
    "jobs",
    "inputs",
    "stream",
    "repairs",
    "tokenizers",
    "probe",
];

/// Returns the most bytes to read of the whole object under `key`, by its class. Data objects are read by
/// ranges, provenance objects beside them as a whole.
pub fn bytes_max(key: &str) -> u64 {
    let mut segments = key.split('/');
    let most = match segments.next().unwrap_or_default() {
        STREAM => STREAM_BYTES_MAX,
        FORK => FORK_BYTES_MAX,
        "log" => RECORD_READ_MAX,
        "repairs" => REPAIR_BYTES_MAX,
        "intents" => INTENT_BYTES_MAX,
        "snapshots" => SNAPSHOT_BYTES_MAX,
        "index" if key.starts_with(BUNDLES) => BUNDLE_BYTES_MAX,
        "index" => SEGMENT_BYTES_MAX,
        "inputs" => INPUTS_LINK_BYTES_MAX,
        "tokenizers" => TOKENIZER_BYTES_MAX,
        "data" => PROVENANCE_OBJECT_BYTES_MAX,
        "jobs" => match segments.nth(2).unwrap_or_default() {
            "progress" => PROGRESS_BYTES_MAX,
            "marks" => MARK_BYTES_MAX,
            "reports" => VALUES_BYTES_MAX,
            _ => LEDGER_BYTES_MAX,
        },
        _ => OTHER_BYTES_MAX,
    };
    most as u64
}

/// Returns the key of the record of version `v`.
pub fn log(v: Version) -> String {
    format!("log/{v:020}.json")
}

/// Returns the version in a record's key.
pub fn log_version(key: &str) -> Option<Version> {
    version(key.strip_prefix(LOG)?)
}

/// Returns the key of the repair that makes the unreadable record of version `v` void.
pub fn repair(v: Version) -> String {
    format!("repairs/{v:020}.json")
}

/// Returns the key of the snapshot after version `v`.
pub fn snapshot(v: Version) -> String {
    format!("snapshots/{v:020}.json")
}

/// Returns the version in a snapshot's key.
pub fn snapshot_version(key: &str) -> Option<Version> {
    version(key.strip_prefix(SNAPSHOTS)?)
}

/// Returns the version in a repair's key.
pub fn repair_version(key: &str) -> Option<Version> {
    version(key.strip_prefix(REPAIRS)?)
}

fn version(name: &str) -> Option<Version> {
    let digits = name.strip_suffix(".json")?;
    (digits.len() == 20 && digits.bytes().all(|c| c.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// Returns the key of the index segment `segment`, which is step / 1024.
pub fn segment(segment: u64) -> String {
    format!("index/{segment:012}.json")
}

/// Returns the number in a segment's key.
pub fn segment_number(key: &str) -> Option<u64> {
    let digits = key.strip_prefix(INDEX)?.strip_suffix(".json")?;
    let number: u64 = digits.parse().ok()?;
    (number < NUMBER_MAX / SEGMENT_STEPS && segment(number) == key).then_some(number)
}

/// Returns the key of the bundle whose newest record has version `last`.
pub fn bundle(last: Version) -> String {
    format!("{BUNDLES}{last:020}.json")
}

/// Returns the version in a bundle's key.
pub fn bundle_version(key: &str) -> Option<Version> {
    version(key.strip_prefix(BUNDLES)?)
}

/// The entry that an intent announces, as named by its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Announced {
    Opened,
    /// TGBs from the first to the last sequence number.
    Batch(Seq, Seq),
    /// The producer has finished; its number of TGBs.
    Finished(Seq),
}

/// Returns the key of the intent of a batch entry.
pub fn intent(producer: &ProducerName, epoch: Epoch, first: Seq, last: Seq) -> String {
    format!("intents/{producer}/{epoch}/{first}-{last}.json")
}

/// Returns the key of the intent of an opening; two instances may request the same epoch.
pub fn intent_opened(producer: &ProducerName, epoch: Epoch, nonce: Nonce) -> String {
    format!("intents/{producer}/{epoch}/opened-{nonce}.json")
}

/// Returns the key of the intent of a finish.
pub fn intent_finished(producer: &ProducerName, epoch: Epoch, final_seq: Seq) -> String {
    format!("intents/{producer}/{epoch}/finished-{final_seq}.json")
}

/// Parses an intent's key, with or without a copy of the intent in it.
pub fn parse_intent(key: &str) -> Option<(ProducerName, Epoch, Announced)> {
    let mut segments = key.strip_prefix(INTENTS)?.split('/');
    let (producer, epoch, name) = (segments.next()?, segments.next()?, segments.next()?);
    let stem = name.strip_suffix(".json")?;
    let announced = stem.split_once('.').map_or(stem, |(before, _)| before);
    let (left, right) = announced.split_once('-')?;
    if segments.next().is_some() {
        return None;
    }
    let what = match left {
        "opened" => Announced::Opened,
        "finished" => Announced::Finished(number(right)?),
        first => Announced::Batch(number(first)?, number(right)?),
    };
    Some((producer.parse().ok()?, number(epoch)?, what))
}

/// Returns the key of one link of a producer's input list.
pub fn inputs(producer: &ProducerName, link: &LinkId) -> String {
    format!("inputs/{producer}/{link}.json")
}

/// Parses the key of a link: its producer and its id.
pub fn parse_inputs(key: &str) -> Option<(ProducerName, LinkId)> {
    let name = key.strip_prefix(INPUTS)?.strip_suffix(".json")?;
    let (producer, link) = name.split_once('/')?;
    Some((producer.parse().ok()?, link.parse().ok()?))
}

/// Returns the key of the tokenizer file of a stream whose tokenizer has this fingerprint.
pub fn tokenizer(fingerprint: &Hash) -> String {
    format!("{TOKENIZERS}{fingerprint}.json")
}

/// Returns the folder of all objects of one opening of a producer.
pub fn data_folder(producer: &ProducerName, epoch: Epoch, nonce: Nonce) -> String {
    format!("data/{producer}/{epoch}-{nonce}/")
}

/// Returns the key of one data object. `random` is drawn anew each time the same numbers are packed again.
pub fn data(
    producer: &ProducerName,
    epoch: Epoch,
    nonce: Nonce,
    seqs: (Seq, Seq),
    random: u64,
    part: u32,
) -> String {
    let folder = data_folder(producer, epoch, nonce);
    let (first, last) = seqs;
    format!("{folder}{first:012}-{last:012}.{random:016x}.{part}.tgb")
}

/// Returns the key of the provenance object of the TGBs `seqs`.
pub fn provenance(
    producer: &ProducerName,
    epoch: Epoch,
    nonce: Nonce,
    seqs: (Seq, Seq),
    random: u64,
) -> String {
    let folder = data_folder(producer, epoch, nonce);
    let (first, last) = seqs;
    format!("{folder}{first:012}-{last:012}.{random:016x}.0.sources")
}

/// Parses the first and last sequence number in the last segment of a data object's key.
pub fn data_seqs(name: &str) -> Option<(Seq, Seq)> {
    seqs(name.strip_suffix(".tgb")?)
}

/// Parses the first and last sequence number in the last segment of a provenance object's key.
pub fn provenance_seqs(name: &str) -> Option<(Seq, Seq)> {
    seqs(name.strip_suffix(".sources")?)
}

fn seqs(stem: &str) -> Option<(Seq, Seq)> {
    let mut fields = stem.split('.');
    let (range, random, part) = (fields.next()?, fields.next()?, fields.next()?);
    let (first, last) = range.split_once('-')?;
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|c| c.is_ascii_digit());
    let hex = random.len() == 16 && random.bytes().all(|c| c.is_ascii_hexdigit());
    if fields.next().is_some() || !hex || ![first, last, part].into_iter().all(digits) {
        return None;
    }
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Hash;

    #[test]
    fn every_class_has_its_own_bound() {
        let (p, job): (ProducerName, _) = ("tok-0".parse().unwrap(), "run".parse().unwrap());
        for (key, most) in [
            (STREAM.to_owned(), STREAM_BYTES_MAX),
            (FORK.to_owned(), FORK_BYTES_MAX),
            (log(7), RECORD_READ_MAX),
            (repair(7), REPAIR_BYTES_MAX),
            (intent(&p, 2, 5, 9), INTENT_BYTES_MAX),
            (snapshot(255), SNAPSHOT_BYTES_MAX),
            (segment(3), SEGMENT_BYTES_MAX),
            (bundle(7), BUNDLE_BYTES_MAX),
            ("inputs/p/1-2/3-4.json".to_owned(), INPUTS_LINK_BYTES_MAX),
            (
                provenance(&p, 2, Nonce([1; 8]), (5, 9), 3),
                PROVENANCE_OBJECT_BYTES_MAX,
            ),
            (progress(&job, 1, 2, 3, (0, 1), "node"), PROGRESS_BYTES_MAX),
            (mark(&job, 1, 2, 3, None), MARK_BYTES_MAX),
            (ledger(&job, 1, 2, 3, "node", 4), LEDGER_BYTES_MAX),
            (tokenizer(&Hash([7; 32])), TOKENIZER_BYTES_MAX),
            ("doctor/1/2".to_owned(), OTHER_BYTES_MAX),
        ] {
            assert_eq!(bytes_max(&key), most as u64, "{key}");
        }
    }

    #[test]
    fn keys_are_as_the_protocol_writes_them() {
        let p: ProducerName = "tok-0".parse().unwrap();
        assert_eq!(log(7), "log/00000000000000000007.json");
        assert_eq!(log(u64::MAX).len(), log(0).len());
        assert_eq!(segment(3), "index/000000000003.json");
        let link = LinkId {
            epoch: 2,
            nonce: Nonce([0xab; 8]),
            files: 7,
            hash: Hash([0xcd; 32]),
        };
        let key = inputs(&p, &link);
        let hash = "cd".repeat(32);
        assert_eq!(
            key,
            format!("inputs/tok-0/2-abababababababab/000000000007-{hash}.json")
        );
        assert_eq!(parse_inputs(&key), Some((p.clone(), link)));
        assert_eq!(parse_inputs(&key.replace("/0", "/")), None);
        assert_eq!(intent(&p, 2, 5, 9), "intents/tok-0/2/5-9.json");
        let key = data(&p, 2, Nonce([0xab; 8]), (5, 9), 0x1f, 1);
        assert_eq!(
            key,
            "data/tok-0/2-abababababababab/000000000005-000000000009.000000000000001f.1.tgb"
        );
        assert!(key.starts_with(&data_folder(&p, 2, Nonce([0xab; 8]))));
        assert_eq!(key.rsplit('/').next().and_then(data_seqs), Some((5, 9)));
        assert_eq!(data_seqs("5-9.1f.1.tgb"), None);
        let key = provenance(&p, 2, Nonce([0xab; 8]), (5, 9), 0x1f);
        assert!(key.starts_with(&data_folder(&p, 2, Nonce([0xab; 8]))));
        let name = key.rsplit('/').next().unwrap();
        assert_eq!(name, "000000000005-000000000009.000000000000001f.0.sources");
        assert_eq!(
            (provenance_seqs(name), data_seqs(name)),
            (Some((5, 9)), None)
        );
        assert_eq!(
            data_seqs("x/000000000005-000000000009.000000000000001f.1.tgb"),
            None
        );
        assert_eq!(snapshot_version(&snapshot(256)), Some(256));
        for bad in [
            "snapshots/1.json",
            "snapshots/",
            "x",
            "snapshots/0000000000000000000a.json",
        ] {
            assert_eq!(snapshot_version(bad), None, "{bad}");
        }
    }
}
