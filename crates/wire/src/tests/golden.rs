//! The messages of socket protocol 1, as stored in tests/golden: they stay readable, and their encoding
//! does not change.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn messages_of_protocol_1_are_read_and_written_as_ever() {
    let seen = read_and_written("socket-v1.txt");
    assert_eq!(seen.len(), 15, "one of each kind: {seen:?}");
    let seen = read_and_written("socket-v1-reports.txt");
    assert_eq!(seen.len(), 3, "one of each kind: {seen:?}");
    let seen = read_and_written("socket-v1-values.txt");
    assert_eq!(seen.len(), 1, "{seen:?}");
}

/// Reads and writes each message of a file; returns their names.
fn read_and_written(file: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let path = folder.join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [who, name, hex] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let stored = bytes(hex);
        let again = if who == "rank" {
            ClientMessage::decode(&stored).unwrap().encode().unwrap()
        } else {
            DaemonMessage::decode(&stored).unwrap().encode().unwrap()
        };
        assert_eq!(
            String::from_utf8_lossy(&again),
            String::from_utf8_lossy(&stored),
            "{name}"
        );
        assert_eq!(again, stored, "{name}");
        seen.insert(name.to_owned());
    }
    seen
}
