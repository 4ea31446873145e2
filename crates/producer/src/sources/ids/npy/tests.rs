//! Lists and tables from every place on, and headers that do not fit.

use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::sources::Cell;

const END: u32 = 9;

fn file(descr: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((text.len() as u16).to_le_bytes());
    file.extend(text.as_bytes());
    file.extend(data);
    file
}

fn bytes(ids: &[u16]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

type Found = ((u64, u64), Result<Vec<i64>, Reason>);

fn read(file: &[u8], place: (u64, u64), limit: u64) -> Vec<Found> {
    let layout = NpyLayout::read(&mut &file[..]).unwrap().unwrap();
    assert_eq!(layout.file_bytes(), file.len() as u64);
    let mut stream = Cursor::new(file.to_vec());
    stream.set_position(layout.offset(place.0, place.1));
    let mut rows = NpyIds::new(layout, stream, place, END, limit);
    let mut found = Vec::new();
    while let Ok(Some(row)) = rows.next(&|_| true) {
        let ids = row.content.map(|content| match content.cells.as_slice() {
            [Cell::Ints(ids)] => ids.clone(),
            [Cell::Unsigned(ids)] => ids.iter().map(|id| id.cast_signed()).collect(),
            other => panic!("{other:?}"),
        });
        found.push(((row.number, row.offset), ids));
    }
    found
}

#[test]
fn headers_that_do_not_fit_are_named() {
    for (descr, order, shape, wanted) in [
        (
            ">u2",
            "False",
            "(4,)",
            "items of type \">u2\", not little-endian whole numbers",
        ),
        ("<f4", "False", "(4,)", "items of type \"<f4\""),
        ("<u2", "True", "(2, 2)", "is in Fortran order"),
        ("<u2", "False", "()", "has the shape []"),
        ("<u2", "False", "(2, 2, 2)", "has the shape [2, 2, 2]"),
        (
            "<u2",
            "False",
            "(18446744073709551615, 2)",
            "has an impossible shape",
        ),
        ("<u2", "False", "(x,)", "has no readable shape"),
    ] {
        let file = file(descr, order, shape, &[]);
        let why = NpyLayout::read(&mut &file[..]).unwrap().unwrap_err();
        assert!(why.contains(wanted), "{wanted} in {why}");
    }
    let why = NpyLayout::read(&mut &b"text"[..]).unwrap().unwrap_err();
    assert!(why.contains("has no header of numpy.save"), "{why}");
}

#[test]
fn a_document_that_is_too_long_costs_itself_alone() {
    let list = file("<u2", "False", "(9,)", &bytes(&[1, 9, 2, 3, 4, 9, 9, 5, 6]));
    let found = read(&list, (0, 0), 16);
    let ids: Vec<_> = found
        .iter()
        .map(|(place, ids)| (place.0, ids.clone()))
        .collect();
    let long = Err(Reason::TooLong { limit: 16 });
    // The third is blank: nothing between two end tokens.
    assert_eq!(
        ids,
        [(0, Ok(vec![1])), (1, long.clone()), (3, Ok(vec![5, 6]))]
    );
    let table = file("<u2", "False", "(2, 3)", &bytes(&[1, 2, 3, 4, 5, 6]));
    assert_eq!(
        read(&table, (0, 0), 16),
        [((0, 0), long.clone()), ((1, 0), long)]
    );
}

proptest! {
    #[test]
    fn documents_of_a_list_from_every_place_on(ids in proptest::collection::vec(0..12_u16, 0..200)) {
        let list = file("<u2", "False", &format!("({},)", ids.len()), &bytes(&ids));
        let all = read(&list, (0, 0), 10_000);
        let wanted: Vec<Vec<i64>> = ids
            .split(|id| *id == 9)
            .map(|document| document.iter().map(|id| i64::from(*id)).collect::<Vec<i64>>())
            .filter(|document| !document.is_empty())
            .collect();
        let found: Vec<Vec<i64>> = all.iter().map(|(_, ids)| ids.clone().unwrap()).collect();
        prop_assert_eq!(found, wanted);
        for (k, (place, _)) in all.iter().enumerate() {
            prop_assert_eq!(&read(&list, *place, 10_000)[..], &all[k..]);
        }
    }

    #[test]
    fn any_bytes_are_a_layout_or_a_reason(data in proptest::collection::vec(any::<u8>(), 0..80)) {
        let file = [b"\x93NUMPY\x01\x00\x40\x00".to_vec(), data].concat();
        let _ = NpyLayout::read(&mut &file[..]).unwrap();
    }
}
