//! Samples and shards that are refused.

use super::super::super::DocumentError;
use super::*;

/// Returns keys and faults of the units of a shard.
async fn outcome(bytes: &[u8], options: &ReadOptions) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let inputs = input(folder.path(), "a.tar", bytes).await;
    let units = found(read(&inputs, options, Place::default()));
    // From every place the rest is the same, faults included.
    for (n, unit) in units.iter().enumerate() {
        assert_eq!(found(read(&inputs, options, unit.0)), units[n..]);
    }
    let text = |(_, raw, _): Found| raw.unwrap_or_else(|why| why);
    units.into_iter().map(text).collect()
}

#[tokio::test]
async fn a_bad_sample_of_a_webdataset_is_named_and_the_next_one_is_good() {
    let long = [7; 101];
    let half = [7; 60];
    type Files<'a> = &'a [(&'a str, &'a [u8])];
    let cases: [(Files, &str); 4] = [
        (
            &[("b.jpg", b"x"), ("b.cls", b"1"), ("b.jpg", b"y")],
            "sample \"b\": two files \"jpg\"; give each",
        ),
        (
            &[("b.cls", b"1"), ("b.seg.png", b"")],
            "sample \"b\": no file \"jpg;jpeg\" in a sample with \"cls\", \"seg.png\"; name",
        ),
        (
            &[("b.jpg", &long), ("b.cls", b"1")],
            "sample \"b\": the document is longer than 100 bytes",
        ),
        (
            &[("b.jpg", &half), ("b.cls", &half)],
            "sample \"b\": the document is longer than 100 bytes",
        ),
    ];
    let options = wanting(&["jpg;jpeg", "cls"]);
    for (bad, expected) in cases {
        let good: [(&str, &[u8]); 2] = [("a.jpg", b"x"), ("a.cls", b"1")];
        let last: [(&str, &[u8]); 3] = [("c.cls", b"1"), ("c.txt", &long), ("c.jpeg", b"")];
        let outcome = outcome(&shard(&[&good[..], bad, &last[..]].concat()), &options).await;
        assert_eq!((&*outcome[0], &*outcome[2]), ("a", "c"));
        assert!(outcome[1].starts_with(expected), "{}", outcome[1]);
        assert_eq!(outcome.len(), 3);
    }
}

#[tokio::test]
async fn a_sparse_file_in_a_webdataset_is_refused() {
    let mut tar = Builder::new(Vec::new());
    entry(&mut tar, EntryType::Regular, "a.jpg", b"x");
    let map = record("GNU.sparse.major", "1");
    entry(&mut tar, EntryType::XHeader, "pax", map.as_bytes());
    entry(&mut tar, EntryType::Regular, "b.jpg", b"1\n0\n");
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNUSparse);
    header.set_path("c.jpg").unwrap();
    header.set_size(512);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.realsize.copy_from_slice(b"00000003000\0");
    gnu.sparse[0].offset.copy_from_slice(b"00000002000\0");
    gnu.sparse[0].numbytes.copy_from_slice(b"00000001000\0");
    header.set_cksum();
    tar.append(&header, &[1; 512][..]).unwrap();
    entry(&mut tar, EntryType::Regular, "d.jpg", b"x");
    let outcome = outcome(&tar.into_inner().unwrap(), &wanting(&["jpg"])).await;
    assert_eq!((&*outcome[0], &*outcome[3]), ("a", "d"));
    for (n, key) in [(1, "b"), (2, "c")] {
        let expected = format!("sample \"{key}\": the file \"jpg\" is stored as sparse");
        assert!(outcome[n].starts_with(&expected), "{}", outcome[n]);
    }
}

/// Cut at each block and within each, and with each block overwritten: one bad document in place of the last sample, or an
/// intact sample that does not depend on the damage.
#[tokio::test]
async fn a_damaged_webdataset_ends_with_one_bad_document() {
    let options = wanting(&["jpg", "cls"]);
    let tar = everything();
    let intact = outcome(&tar, &options).await;
    let end = tar.len() - 1024;
    for cut in (0..=end).step_by(512).flat_map(|at| [at, at + 300]) {
        let cut = cut.min(end);
        let mut found = outcome(&tar[..cut], &options).await;
        let last = found.pop().unwrap();
        assert!(last.starts_with("not readable as tar: it ends "), "{last}");
        assert_eq!(found, intact[..found.len()], "cut at {cut}");
        assert!(found.len() < 8);
    }
    for at in (0..end).step_by(512) {
        let mut damaged = tar.clone();
        damaged[at..at + 512].fill(b'?');
        let found = outcome(&damaged, &options).await;
        let good = found
            .iter()
            .zip(&intact)
            .take_while(|(a, b)| a == b)
            .count();
        let rest = &found[good..];
        let broken = rest
            .iter()
            .filter(|text| text.contains("not readable as tar"));
        assert!(
            broken.count() <= 1 && found.len() <= 8,
            "at {at}: {found:?}"
        );
    }
    let one = outcome(
        b"not a tar, but long enough".repeat(99).as_slice(),
        &options,
    )
    .await;
    assert_eq!(
        one,
        [
            "not readable as tar: it has no valid header at byte 0; copy or write the file again, or name its format \
          in source.format"
        ]
    );
    let two = outcome(&[tar.clone(), tar.clone()].concat(), &options).await;
    assert_eq!(two[..8], intact);
    assert!(two[8].contains("data behind its end"), "{}", two[8]);
    assert_eq!(
        outcome(&vec![0; 10240], &options).await,
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn a_damaged_compression_of_a_webdataset_is_one_bad_document() {
    let folder = tempfile::tempdir().unwrap();
    let (tar, options) = (everything(), wanting(&["cls"]));
    for (name, bytes) in [
        ("a.tar.gz", gzip(&tar)),
        ("a.tar.zst", zstd::encode_all(&tar[..], 1).unwrap()),
    ] {
        for cut in [bytes.len() - 1, bytes.len() - 20, bytes.len() / 2] {
            let inputs = input(folder.path(), name, &bytes[..cut]).await;
            let units = found(read(&inputs, &options, Place::default()));
            let last = units.last().unwrap().1.clone().unwrap_err();
            assert!(last.contains("data ends early or is damaged"), "{last}");
            assert!(units[..units.len() - 1].iter().all(|unit| unit.1.is_ok()));
        }
    }
}

#[test]
fn messages_name_shard_and_sample() {
    let two = Reason::TwoMembers {
        field: "jpg".into(),
    };
    let error = DocumentError::new("s.tar", Format::Auto, 3, two.in_sample("a/b"));
    assert_eq!(
        error.to_string(),
        "s.tar:4: sample \"a/b\": two files \"jpg\"; give each sample a key of its own"
    );
    let detail = "ends in the middle of a/b.jpg".to_owned();
    let error = DocumentError::new("s.tar", Format::Auto, 3, Reason::Tar { detail });
    assert!(
        error
            .to_string()
            .starts_with("s.tar:4: not readable as tar: it ends in the middle of a/b.jpg;"),
        "{error}"
    );
    assert!(error.reason.is_of_file());
}

/// Names alone must not fill the memory either.
#[tokio::test]
async fn a_sample_of_a_webdataset_with_endless_names_is_too_long() {
    let mut tar = Builder::new(Vec::new());
    for n in 0..300 {
        let name = format!("a.{n}{}", "x".repeat(5000));
        entry(&mut tar, EntryType::Regular, &name, b"");
    }
    let outcome = outcome(&tar.into_inner().unwrap(), &wanting(&["cls"])).await;
    assert_eq!(outcome.len(), 1);
    assert!(outcome[0].contains("longer than 100 bytes"), "{outcome:?}");
    let mut tar = Builder::new(Vec::new());
    let name = format!("a.{}", "x".repeat(2 << 20));
    entry(&mut tar, EntryType::Regular, &name, b"");
    let bytes = tar.into_inner().unwrap();
    let outcome = self::outcome(&bytes, &wanting(&["cls"])).await;
    assert!(
        outcome[0].contains("has headers of more than"),
        "{outcome:?}"
    );
}
