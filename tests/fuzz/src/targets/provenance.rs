//! The documents that went into TGBs.

use batchweave_core::provenance::Provenance;

use crate::check::good;
use crate::seal;

pub(super) fn provenance(input: &[u8]) {
    one(input);
    let mut sealed = input.to_vec();
    seal::provenance(&mut sealed);
    if sealed != input {
        one(&sealed);
    }
}

fn one(bytes: &[u8]) {
    let Ok(read) = Provenance::decode(bytes) else {
        return;
    };
    let written = read.encode();
    let again = good(Provenance::decode(&written), "provenance is read again");
    assert_eq!(read, again);
    assert_eq!(again.encode(), written);
    for seq in [
        read.first_seq,
        read.first_seq.saturating_add(1),
        0,
        u64::MAX,
    ] {
        let _ = read.get(seq);
    }
    for sources in &read.tgbs {
        let (seq_len, rows) = (8, 64);
        let placed = sources.placed(seq_len, rows);
        assert!(placed.len() <= sources.pieces.len() + rows as usize * 2);
    }
}
