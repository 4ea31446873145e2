//! Chains grow and are read again, whatever the sizes; damage is an error with the key.

use proptest::prelude::*;

use super::*;
use crate::keys;

const OPENING: (Epoch, Nonce) = (2, Nonce([0xab; 8]));

fn file(n: u64, name_bytes: usize) -> PinnedFile {
    let name = format!("{n:0name_bytes$}");
    PinnedFile::new(name, n, &n.to_le_bytes(), b"")
}

/// Reads the list that ends in `head` out of what was stored.
fn read(stored: &[NewLink], head: Option<LinkId>) -> (Chain, Vec<PinnedFile>) {
    let mut reader = ChainReader::new(head);
    while let Some(id) = reader.next() {
        let link = stored.iter().find(|(stored, _)| *stored == id).unwrap();
        reader.take(&link.1, "k").unwrap();
    }
    reader.finish()
}

proptest! {
    /// Every head that there ever was names its list, in few links.
    #[test]
    fn a_chain_is_the_list_however_it_grew(
        growths in prop::collection::vec((1u64..40, 1usize..60), 0..60),
        fan in 2u64..9,
        bytes_max in 200u64..4000,
    ) {
        let (mut chain, mut all, mut stored) = (Chain::default(), Vec::new(), Vec::new());
        let mut heads = Vec::new();
        for (files, name_bytes) in growths {
            let first = all.len() as u64;
            all.extend((first..first + files).map(|n| file(n, name_bytes)));
            let (head, links) = chain.grow_by(OPENING, &all, LinkBounds { fan, bytes_max });
            prop_assert_eq!(Some(head), chain.head());
            stored.extend(links);
            heads.push((chain.head(), all.len()));
            let (again, files) = read(&stored, chain.head());
            prop_assert_eq!(&again, &chain, "a restart goes on with the same chain");
            prop_assert_eq!(files, &all[..]);
            let full = |link: &&Link| link.bytes * fan >= bytes_max;
            let small = chain.0.iter().filter(|link| !full(link)).count() as u64;
            let sizes = u64::from(all.len().ilog2()) + 1;
            // A link that would be too large together with those before it ends a run too.
            let full = chain.0.len() as u64 - small;
            prop_assert!(small <= fan * sizes + fan * full, "{small} small links");
        }
        for (head, files) in heads {
            prop_assert_eq!(read(&stored, head).1, &all[..files]);
        }
    }
}

/// The cost of following a folder: 4 files at a time, as in the measurement behind the chain.
#[test]
fn ten_thousand_files_cost_a_few_times_their_own_bytes() {
    let (mut chain, mut all, mut bytes) = (Chain::default(), Vec::new(), 0);
    while all.len() < 10_000 {
        let first = all.len() as u64;
        all.extend((first..first + 4).map(|n| file(n, 30)));
        let (_, links) = chain.grow(OPENING, &all);
        bytes += links.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    }
    let own: usize = all.iter().map(|file| file.line().len()).sum();
    assert!(bytes < 8 * own, "{bytes} for {own}");
    assert!(chain.ids().count() < 30, "{} links", chain.ids().count());
}

#[test]
fn a_large_list_falls_into_bounded_links() {
    let all: Vec<_> = (0..100_000).map(|n| file(n, 100)).collect();
    let mut chain = Chain::default();
    let (_, links) = chain.grow(OPENING, &all);
    assert!(links.len() > 3, "{} links", links.len());
    assert!(
        links
            .iter()
            .all(|(_, bytes)| bytes.len() <= INPUTS_LINK_BYTES_MAX)
    );
    assert_eq!(read(&links, chain.head()).1, all);
    let (none, links) = Chain::default().grow(OPENING, &[] as &[PinnedFile]);
    assert_eq!(read(&links, Some(none)).1, []);
    assert_eq!(chain.grow(OPENING, &all).1, [], "nothing new");
}

#[test]
fn damage_and_other_lists_are_errors_with_the_key() {
    let all: Vec<_> = (0..3).map(|n| file(n, 3)).collect();
    let mut chain = Chain::default();
    let first = chain.grow(OPENING, &all[..2]).1.remove(0);
    let second = chain.grow(OPENING, &all).1.remove(0);
    let key = keys::inputs(&"p".parse().unwrap(), &second.0);
    for at in 0..second.1.len() {
        let mut damaged = second.1.clone();
        damaged[at] ^= 1;
        let mut reader = ChainReader::new(Some(second.0));
        let why = reader.take(&damaged, &key).unwrap_err().to_string();
        assert!(why.starts_with(&key) && why.contains("damaged"), "{why}");
        reader.take(&second.1, &key).unwrap();
        assert_eq!(reader.next(), Some(first.0));
    }
    let rule = |text: String, files| {
        let hash = Hash::sha256(text.as_bytes());
        let id = LinkId {
            files,
            hash,
            ..second.0
        };
        let mut reader = ChainReader::new(Some(id));
        reader.take(text.as_bytes(), "k").unwrap_err().to_string()
    };
    let text = String::from_utf8(second.1.clone()).unwrap();
    let wrong = [
        rule(text.clone(), 4),
        rule(text.replace("000000000002-", "000000000003-"), 3),
        rule(text.replace("\"size\":2", "\"size\":-2"), 3),
        rule(text.replace("\"format\":1", "\"format\":2"), 3),
        rule(text.replace("\"before\"", "\"behind\""), 3),
    ];
    let words = [
        "1 files behind 2",
        "1 files behind 3",
        "not readable",
        "format 2",
        "not readable",
    ];
    for (why, word) in wrong.iter().zip(words) {
        assert!(why.contains(word), "{word} in {why}");
    }
}

#[test]
fn ids_and_cursors_have_one_form() {
    let id = Chain::default().grow(OPENING, &[file(0, 1)]).0;
    let text = id.to_string();
    assert_eq!(text.parse(), Ok(id));
    for other in [
        text.replacen("2-", "02-", 1),
        text.replacen("/0", "/", 1),
        text.to_uppercase(),
        format!("{text}x"),
        String::new(),
    ] {
        assert!(other.parse::<LinkId>().is_err(), "{other}");
    }
    let cursor = |json| head_of(&Cursor(json));
    assert_eq!(cursor(serde_json::Value::Null), Ok(None));
    assert_eq!(cursor(serde_json::json!({"inputs": text})), Ok(Some(id)));
    assert!(cursor(serde_json::json!({"offset": 3})).is_err());
}

#[test]
fn the_golden_chain() {
    let file = |name: &str, size| PinnedFile {
        fingerprint: earlier_fingerprint(name.as_bytes(), b""),
        ..PinnedFile::new(name.into(), size, b"", b"")
    };
    let all = [
        file("a.jsonl", 10),
        file("b \"c\".txt", 0),
        file("s3://x/y", 1 << 40),
    ];
    let mut chain = Chain::default();
    let (_, mut links) = chain.grow(OPENING, &all[..2]);
    links.extend(chain.grow((3, OPENING.1), &all).1);
    let producer = "tok-0".parse().unwrap();
    let text: Vec<String> = links
        .iter()
        .map(|(id, bytes)| {
            format!(
                "{}\n{}",
                keys::inputs(&producer, id),
                String::from_utf8_lossy(bytes)
            )
        })
        .collect();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/inputs-v1.txt"
    );
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, text.concat()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text.concat());
}

#[test]
fn a_fingerprint_covers_both_ends() {
    let new = |head: &[u8], tail: &[u8]| PinnedFile::new("a".into(), 9, head, tail);
    let pin = new(b"1234", b"56789");
    assert_eq!(pin.fingerprint, "crc64 ae8b14860a799888");
    assert_ne!(pin, new(b"1235", b"56789"));
    assert_ne!(pin, new(b"1234", b"56788"));
    assert!(!pin.has_earlier_fingerprint());
    let earlier = earlier_fingerprint(b"1234", b"56789");
    assert_eq!(earlier, &Hash::sha256(b"123456789").to_string()[..16]);
    let fingerprint = earlier;
    assert!(PinnedFile { fingerprint, ..pin }.has_earlier_fingerprint());
}
