//! Headers of any bytes, and pairs whose files contradict each other.

use proptest::prelude::*;

use super::*;
use crate::sources::tests::{list, options};
use crate::sources::{FileReader, Format, InputList, Place, Unit};

fn index(code: u8, lengths: &[i32], pointers: &[i64], borders: &[i64]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(1_u64.to_le_bytes());
    bytes.push(code);
    bytes.extend((lengths.len() as u64).to_le_bytes());
    bytes.extend((borders.len() as u64).to_le_bytes());
    bytes.extend(lengths.iter().flat_map(|n| n.to_le_bytes()));
    bytes.extend(pointers.iter().flat_map(|n| n.to_le_bytes()));
    bytes.extend(borders.iter().flat_map(|n| n.to_le_bytes()));
    bytes
}

async fn pair(folder: &std::path::Path, index: &[u8], data: &[u8]) -> InputList {
    std::fs::write(folder.join("a.idx"), index).unwrap();
    std::fs::write(folder.join("a.bin"), data).unwrap();
    list(folder).await
}

/// Returns the units of all files from `from` on.
fn read(inputs: &InputList, mut from: Place) -> Vec<Unit> {
    let options = options(Format::Megatron);
    let mut units = Vec::new();
    while let Some(mut reader) = FileReader::open_in(inputs, &options, from).unwrap() {
        while let Some(unit) = reader.next_unit().unwrap() {
            units.push(unit);
        }
        from = Place {
            file: from.file + 1,
            ..Place::default()
        };
    }
    units
}

fn ids(units: &[Unit]) -> Vec<Result<Vec<i64>, String>> {
    let one = |unit: &Unit| match (&unit.raw, &unit.cells[..]) {
        (Err(why), _) => Err(why.to_string()),
        (_, [crate::sources::Cell::Ints(ids)]) => Ok(ids.clone()),
        _ => panic!("no ids"),
    };
    units.iter().map(one).collect()
}

#[tokio::test]
async fn documents_from_every_place_on() {
    let folder = tempfile::tempdir().unwrap();
    // Sequences out of order in the data, an empty document, one that is too long.
    let data: Vec<u8> = (0..30_u8).collect();
    let index = index(1, &[2, 3, 1, 0, 20], &[5, 0, 9, 0, 10], &[0, 2, 2, 3, 4, 5]);
    let inputs = pair(folder.path(), &index, &data).await;
    let all = read(&inputs, Place::default());
    let found = ids(&all);
    assert_eq!(
        found[..4],
        [Ok(vec![5, 6, 0, 1, 2]), Ok(vec![]), Ok(vec![9]), Ok(vec![])]
    );
    assert!(
        found[4]
            .as_ref()
            .is_err_and(|why| why.contains("longer than 100 bytes"))
    );
    for k in 0..5 {
        assert_eq!(ids(&read(&inputs, all[k].place)), found[k..], "from {k}");
    }
    assert_eq!(
        all[4].place,
        Place {
            file: 0,
            unit: 4,
            offset: 0
        }
    );
}

#[tokio::test]
async fn damaged_pairs_are_bad_documents_with_a_reason() {
    let good = index(8, &[2, 2], &[0, 4], &[0, 1, 2]);
    let mut version = good.clone();
    version[9] = 2;
    for (index, data, wanted) in [
        (b"text".to_vec(), 8, "it does not begin with MMIDIDX"),
        (good[..20].to_vec(), 8, "it ends in its header"),
        (
            good[..60].to_vec(),
            8,
            "it has 60 bytes, and 2 sequences with 3 borders of documents take 82",
        ),
        (version, 8, "it has version 2, not 1"),
        (index(7, &[], &[], &[0]), 8, "its items are fractions"),
        (index(9, &[], &[], &[0]), 8, "unknown type code 9"),
        (
            good.clone(),
            6,
            "sequence 2 has 2 ids of 2 bytes from byte 4 on, and the .bin file has 6 bytes",
        ),
        (index(8, &[-1], &[0], &[0, 1]), 8, "sequence 1 has -1 ids"),
        (index(8, &[1], &[-8], &[0, 1]), 8, "from byte -8 on"),
        (
            index(8, &[1], &[0], &[0, 9]),
            8,
            "document 1 ends at sequence 9",
        ),
        (
            index(8, &[1, 1], &[0, 2], &[2, 1, 2]),
            8,
            "document 1 ends at sequence 1",
        ),
        (
            index(8, &[1], &[0], &[5, 9]),
            8,
            "document 1 begins at sequence 5 of 1",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let inputs = pair(folder.path(), &index, &vec![0; data]).await;
        let found = ids(&read(&inputs, Place::default()));
        let why = found.last().unwrap().as_ref().unwrap_err();
        assert!(why.contains(wanted), "{wanted} in {why}");
    }
}

proptest! {
    #[test]
    fn any_header_is_an_index_or_a_reason(
        mut head in proptest::collection::vec(any::<u8>(), 0..40), magic in any::<bool>(), size in any::<u64>(),
    ) {
        if magic && head.len() > 17 {
            head[..9].copy_from_slice(MAGIC);
            head[9..17].copy_from_slice(&1_u64.to_le_bytes());
        }
        if let Ok(header) = IndexHeader::parse(&head, size) {
            // Places inside the file do not overflow.
            prop_assert!(header.border_at(header.borders) <= size);
            prop_assert!(header.pointer_at(header.sequences) <= size);
        }
    }

    #[test]
    fn any_pair_is_read_to_its_end(
        lengths in proptest::collection::vec(-1..9_i32, 0..6), pointers in proptest::collection::vec(-1..40_i64, 6),
        borders in proptest::collection::vec(-1..7_i64, 0..5), code in 0..10_u8,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let index = index(code, &lengths, &pointers[..lengths.len()], &borders);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let inputs = runtime.block_on(pair(folder.path(), &index, &[7; 32]));
        prop_assert!(read(&inputs, Place::default()).len() <= 5);
    }
}
