//! Intents: what is chosen, in which order, and what is refused.

use super::*;
use crate::ids::Nonce;
use crate::limits::NUMBER_MAX;
use crate::manifest::entry::{BatchEntry, Retired};
use crate::manifest::testing::{Bench, name, request};
use crate::stream::StreamOrder;

/// Two open producers, the second with TGBs 0 and 1 committed.
fn bench() -> Bench {
    let mut b = Bench::new(StreamOrder::Arrival, &[]);
    b.fold(vec![b.opened("p0"), b.opened("p1")]);
    b.commit("p1", 2);
    b
}

fn listed(entries: &[&str]) -> Vec<(String, u64)> {
    entries
        .iter()
        .map(|k| (format!("intents/{k}.json"), 500))
        .collect()
}

fn chosen(b: &Bench, entries: &[&str]) -> (Vec<String>, Vec<String>) {
    let selection = select(&b.m, &listed(entries), &name("me"), 0);
    let short = |keys: Vec<String>| {
        let strip = |k: &String| k["intents/".len()..k.len() - ".json".len()].to_owned();
        keys.iter().map(strip).collect::<Vec<_>>()
    };
    let mut useless = selection.dead;
    useless.extend(selection.odd);
    (short(selection.wanted), short(useless))
}

#[test]
fn an_intent_is_read_back_and_bound_to_its_key() {
    let b = bench();
    let stream = b.m.stream_id();
    for entry in [
        Entry::Batch(b.batch("p0", 2)),
        b.opened("p0"),
        b.finish("p1"),
    ] {
        let (key, bytes) = encode(stream, &entry, 0).unwrap();
        assert!(keys::parse_intent(&key).is_some(), "{key}");
        assert_eq!(decode(&key, &bytes, stream).unwrap(), entry);
        let elsewhere = key.replace("intents/p", "intents/q");
        assert!(decode(&elsewhere, &bytes, stream).is_err(), "another key");
        let other = StreamId::from_random([9; 16]);
        assert!(decode(&key, &bytes, other).is_err(), "another stream");
        for cut in 0..bytes.len() - 1 {
            assert!(decode(&key, &bytes[..cut], stream).is_err(), "cut at {cut}");
        }
    }
}

#[test]
fn only_intents_that_extend_a_committed_prefix_are_selected_in_order() {
    let b = bench();
    let (wanted, dead) = chosen(
        &b,
        &[
            "p1/1/4-4",
            "p1/1/2-3",
            "p0/1/0-0",
            "p0/1/0-2",
            "p0/1/5-6",
            "p1/1/finished-5",
        ],
    );
    assert_eq!(
        wanted,
        ["p0/1/0-2", "p1/1/2-3", "p1/1/4-4", "p1/1/finished-5"]
    );
    assert!(
        dead.is_empty(),
        "what comes later may still be needed: {dead:?}"
    );
}

#[test]
fn an_intent_that_can_never_be_valid_is_dead() {
    let b = bench();
    let odd = [
        "p1/1/0-1",
        "p1/1/1-4",
        "p1/1/finished-1",
        "p1/0/2-3",
        "p9/1/0-0",
        "p0/1/opened-00",
        "p0/1/x-1",
        "p0/01/0-0",
        "p0/1/0-0/y",
        "",
        "P0/1/0-0",
    ];
    let (wanted, dead) = chosen(&b, &odd);
    assert!(wanted.is_empty(), "{wanted:?}");
    assert_eq!(dead.len(), odd.len());
    let huge = [(
        "intents/p0/1/0-0.json".to_owned(),
        INTENT_BYTES_MAX as u64 + 1,
    )];
    assert_eq!(select(&b.m, &huge, &name("me"), 0).odd.len(), 1);
    let far = format!("p0/1/0-{NUMBER_MAX}");
    assert_eq!(chosen(&b, &[&far]).1.len(), 1);
}

#[test]
fn an_old_state_calls_nothing_dead_that_a_newer_one_wants() {
    let mut b = bench();
    let old = b.m.clone();
    b.fold(vec![b.opened("p0"), b.opened("new")]);
    let keys = listed(&["p0/2/0-1", "new/1/0-0", "p1/1/2-2"]);
    let selection = select(&old, &keys, &name("me"), 0);
    assert!(selection.dead.is_empty(), "{selection:?}");
    assert_eq!(selection.odd.len(), 2, "{selection:?}");
    assert_eq!(select(&b.m, &keys, &name("me"), 0).wanted.len(), 3);
}

#[test]
fn openings_are_wanted_for_the_next_epoch() {
    let b = bench();
    let nonce = Nonce([4; 8]);
    let keys = [
        format!("new/1/opened-{nonce}"),
        format!("p0/2/opened-{nonce}"),
    ];
    let (wanted, dead) = chosen(&b, &[&keys[0], &keys[1], "p0/3/opened-00"]);
    assert_eq!(wanted, keys);
    assert_eq!(dead, ["p0/3/opened-00"]);
}

#[test]
fn the_choice_begins_elsewhere_each_round_and_leaves_out_our_own() {
    let b = bench();
    let listed = listed(&["p0/1/0-0", "p1/1/2-2"]);
    let first = |start| select(&b.m, &listed, &name("me"), start).wanted.remove(0);
    assert_ne!(first(0), first(1));
    assert_eq!(select(&b.m, &listed, &name("p0"), 0).wanted.len(), 1);
}

#[test]
fn a_retired_epoch_has_dead_intents_only() {
    let mut b = bench();
    let (wanted, _) = chosen(&b, &["p1/1/2-2", "p1/1/finished-3"]);
    assert_eq!(wanted.len(), 2);
    b.fold(vec![Entry::Retired(Retired {
        request: request(1),
        producer: name("p1"),
        epoch: 1,
        reason: String::new(),
    })]);
    let nonce = Nonce([4; 8]);
    let opening = format!("p1/2/opened-{nonce}");
    let (wanted, dead) = chosen(&b, &["p1/1/2-2", "p1/1/finished-3", &opening]);
    assert_eq!((wanted, dead.len()), (vec![opening], 2));
}

#[test]
fn an_entry_is_worth_something_as_long_as_a_record_may_make_it_valid() {
    let b = bench();
    let batch = |change: fn(&mut BatchEntry)| {
        let mut batch = b.batch("p1", 2);
        change(&mut batch);
        candidacy(&b.m, &Entry::Batch(batch))
    };
    assert_eq!(batch(|_| ()), Candidacy::Candidate);
    let later = batch(|e| (e.first_seq, e.last_seq) = (4, 5));
    assert_eq!(
        later,
        Candidacy::Candidate,
        "others of its producer may come first"
    );
    let not_now: [fn(&mut BatchEntry); 2] = [|e| e.mixture += 1, |e| e.epoch += 1];
    for change in not_now {
        assert!(matches!(batch(change), Candidacy::NotNow(_)));
    }
    let never: [fn(&mut BatchEntry); 6] = [
        |e| e.first_seq = 1,
        |e| e.epoch = 0,
        |e| e.cursor_before = crate::ids::Hash::sha256(b"elsewhere"),
        |e| e.last_seq += 1,
        |e| e.tgbs[0].parts[0].key = "data/p1/1-00/0-1.tgb".into(),
        |e| e.cursor = crate::cursor::Cursor(serde_json::Value::from("x".repeat(70 << 10))),
    ];
    for (at, change) in never.into_iter().enumerate() {
        assert!(matches!(batch(change), Candidacy::Never(_)), "{at}");
    }
    assert!(matches!(
        candidacy(&b.m, &b.finish("p1")),
        Candidacy::Candidate
    ));
}

#[test]
fn a_key_with_room_carries_the_whole_intent() {
    let b = bench();
    let stream = b.m.stream_id();
    for entry in [
        Entry::Batch(b.batch("p0", 2)),
        b.opened("p0"),
        b.finish("p1"),
    ] {
        let (plain, body) = encode(stream, &entry, 0).unwrap();
        assert!(carried(&plain).is_none(), "no room");
        let (key, bytes) = encode(stream, &entry, 1024).unwrap();
        assert_eq!(bytes, body, "the object is the same");
        assert_eq!(stem(&key), plain);
        assert_eq!(keys::parse_intent(&key), keys::parse_intent(&plain));
        assert_eq!(carried(&key).unwrap().unwrap(), body);
        assert_eq!(decode(&key, &body, stream).unwrap(), entry);
        let (exact, _) = encode(stream, &entry, key.len()).unwrap();
        assert_eq!(exact, key);
        let (shorter, _) = encode(stream, &entry, key.len() - 1).unwrap();
        assert_eq!(shorter, plain);
        // Damage never panics, and what is unpacked is bound to the key all the same.
        for at in stem(&key).len()..key.len() {
            let mut damaged = key.clone().into_bytes();
            damaged[at] = b'=';
            let damaged = String::from_utf8(damaged).unwrap();
            let read = carried(&damaged).transpose().ok().flatten();
            let entry_read = read.and_then(|b| decode(&damaged, &b, stream).ok());
            assert_ne!(entry_read, Some(entry.clone()), "{damaged}");
        }
        let moved = key.replace("intents/p", "intents/q");
        assert!(decode(&moved, &body, stream).is_err(), "another key");
    }
}

#[test]
fn a_key_that_would_unpack_to_gigabytes_is_refused() {
    let zeros = vec![b' '; INTENT_BYTES_MAX + 1];
    let bomb = carried::add("intents/p/1/0-0.json".to_owned(), &zeros, 1024);
    assert!(bomb.len() < 300, "{}", bomb.len());
    let refused = carried(&bomb).unwrap().unwrap_err().to_string();
    assert!(refused.contains("intents/p/1/0-0.json"), "{refused}");
    assert!(refused.contains("larger than"), "{refused}");
}
