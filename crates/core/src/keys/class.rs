//! The keys that BatchWeave writes, told apart from all others below a root.

use super::{
    DATA, DELETING, FORK, STREAM, bundle_version, data_seqs, log_version, parse_alive,
    parse_inputs, parse_intent, parse_ledger, parse_mark, parse_progress, parse_values,
    provenance_seqs, repair_version, segment_number, snapshot_version,
};
use crate::ids::ProducerName;

/// Returns the class of a key that BatchWeave writes; `None` for any other key.
pub fn class_of(key: &str) -> Option<&'static str> {
    let jobs = |key| {
        parse_mark(key).is_some()
            || parse_progress(key).is_some()
            || parse_alive(key).is_some()
            || parse_ledger(key).is_some()
            || parse_values(key).is_some()
    };
    let (class, own) = match key.split('/').next()? {
        STREAM | DELETING | FORK => ("stream", [STREAM, DELETING, FORK].contains(&key)),
        "log" => ("log", log_version(key).is_some()),
        "repairs" => ("repairs", repair_version(key).is_some()),
        "intents" => ("intents", parse_intent(key).is_some()),
        "snapshots" => ("snapshots", snapshot_version(key).is_some()),
        "index" => (
            "index",
            segment_number(key).or(bundle_version(key)).is_some(),
        ),
        "inputs" => ("inputs", parse_inputs(key).is_some()),
        "data" => ("data", is_data(key)),
        "jobs" => ("jobs", jobs(key)),
        "tokenizers" => ("tokenizers", is_tokenizer(key)),
        "probe" => ("probe", is_probe(key)),
        _ => return None,
    };
    own.then_some(class)
}

/// Returns whether this is a data or provenance object, in the folder of an opening.
fn is_data(key: &str) -> bool {
    let mut segments = key.strip_prefix(DATA).unwrap_or_default().split('/');
    let (Some(producer), Some(opening), Some(name), None) = (
        segments.next(),
        segments.next(),
        segments.next(),
        segments.next(),
    ) else {
        return false;
    };
    let is_opening = opening.split_once('-').is_some_and(|(epoch, nonce)| {
        let digits = !epoch.is_empty() && epoch.bytes().all(|c| c.is_ascii_digit());
        digits && nonce.len() == 16 && is_hex(nonce)
    });
    let seqs = data_seqs(name).or(provenance_seqs(name));
    producer.parse::<ProducerName>().is_ok() && is_opening && seqs.is_some()
}

/// Returns whether this is the stored file of a tokenizer, by its fingerprint.
fn is_tokenizer(key: &str) -> bool {
    let name = key.strip_prefix("tokenizers/").unwrap_or_default();
    let fingerprint = name
        .split_once('.')
        .map_or(name, |(fingerprint, _)| fingerprint);
    fingerprint.len() == 64 && is_hex(fingerprint) && !name.contains('/')
}

/// Returns whether this is a temporary object of a check of the store.
fn is_probe(key: &str) -> bool {
    let rest = key
        .strip_prefix("probe/")
        .and_then(|rest| rest.split_once('/'));
    rest.is_some_and(|(random, name)| random.len() == 16 && is_hex(random) && !name.is_empty())
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{
        CLASSES, alive, bundle, data, inputs, intent, intent_finished, intent_opened, ledger, log,
        mark, progress, provenance, repair, segment, snapshot, tokenizer, values,
    };
    use super::*;
    use crate::ids::{Hash, JobName, Nonce};
    use crate::inputs::LinkId;

    #[test]
    fn every_key_that_is_written_has_its_class() {
        let (p, job): (ProducerName, JobName) = ("tok-0".parse().unwrap(), "run".parse().unwrap());
        let nonce = Nonce([0xab; 8]);
        let hash = Hash([0xcd; 32]);
        let mut classes = BTreeSet::from(CLASSES);
        let (epoch, files) = (2, 7);
        let link = LinkId {
            epoch,
            nonce,
            files,
            hash,
        };
        for (key, class) in [
            (STREAM.to_owned(), "stream"),
            (DELETING.to_owned(), "stream"),
            (FORK.to_owned(), "stream"),
            (log(7), "log"),
            (repair(7), "repairs"),
            (intent(&p, 2, 5, 9), "intents"),
            (intent_opened(&p, 2, nonce), "intents"),
            (intent_finished(&p, 2, 9), "intents"),
            (snapshot(255), "snapshots"),
            (segment(3), "index"),
            (bundle(7), "index"),
            (inputs(&p, &link), "inputs"),
            (data(&p, 2, nonce, (5, 9), 3, 1), "data"),
            (provenance(&p, 2, nonce, (5, 9), 3), "data"),
            (mark(&job, 1, 2, 3, None), "jobs"),
            (progress(&job, 1, 2, 3, (0, 1), "node"), "jobs"),
            (alive(&job, 1, 2, 3, "node"), "jobs"),
            (ledger(&job, 1, 2, 3, "node", 4), "jobs"),
            (values(&job, 1, 2, (3, 9), "node", 4), "jobs"),
            (tokenizer(&Hash([0x0a; 32])), "tokenizers"),
            ("probe/00000000000000ff/race-3-0".to_owned(), "probe"),
        ] {
            assert_eq!(class_of(&key), Some(class), "{key}");
            classes.remove(class);
        }
        assert!(classes.is_empty(), "without a key here: {classes:?}");
    }

    #[test]
    fn keys_of_others_have_none() {
        for key in [
            "notes.txt",
            "stream.json/x",
            "log/7.json",
            "log/README",
            "data/notes.txt",
            "data/tok-0/2-ab/000000000005-000000000009.0000000000000003.1.tgb",
            "data/tok-0/2-abababababababab/model.bin",
            "inner/stream.json",
            "inner/log/00000000000000000007.json",
            "probe/notes",
            "jobs/run@1/model.pt",
            "tokenizers/gpt2.json",
            "index/3.json",
            "index/bundles/7.json",
            "",
        ] {
            assert_eq!(class_of(key), None, "{key}");
        }
    }
}
