//! Ids of lines and of cells, good and bad.

use proptest::prelude::*;

use super::*;
use crate::sources::Place;

const VOCABULARY: Vocabulary = Vocabulary {
    id_bound: 300,
    begin_token: None,
    end_token: 256,
};

fn unit(raw: &[u8], cells: Vec<Cell>) -> Unit {
    Unit {
        place: Place::default(),
        kind: if cells.is_empty() {
            UnitKind::Json
        } else {
            UnitKind::Row
        },
        raw: Ok(raw.to_vec().into()),
        cells,
    }
}

fn line(text: &str) -> Result<Option<Vec<u32>>, String> {
    let unit = unit(text.as_bytes(), Vec::new());
    tokens(unit).map_err(|why| why.to_string())
}

/// Returns the ids of a document without marks.
fn tokens(unit: Unit) -> Result<Option<Vec<u32>>, Reason> {
    let made = content("ids", VOCABULARY, unit, None)?;
    Ok(made.map(|made| match made {
        Content::Tokens(ids) => ids,
        other => panic!("{other:?}"),
    }))
}

#[test]
fn marks_go_with_their_ids() {
    let marked = |ids: &[i64], marks: &[bool]| {
        let unit = unit(b"", vec![Cell::Ints(ids.to_vec())]);
        content("", VOCABULARY, unit, Some(marks.to_vec()))
    };
    // An end token of the document keeps its mark, and one that is added is not learned.
    let own = Content::Turns(vec![7, 8, 256], vec![false, true, true]);
    assert_eq!(marked(&[7, 8, 256], &[false, true, true]), Ok(Some(own)));
    let added = Content::Turns(vec![7, 8, 256], vec![false, true, false]);
    assert_eq!(marked(&[7, 8], &[false, true]), Ok(Some(added)));
    let why = Reason::MaskLength { marks: 1, ids: 2 };
    assert_eq!(marked(&[7, 8], &[true]), Err(why));
    assert_eq!(marked(&[256], &[true]), Err(Reason::Empty));
}

#[test]
fn a_begin_token_that_is_missing_is_added_and_not_learned() {
    let vocabulary = Vocabulary {
        begin_token: Some(250),
        ..VOCABULARY
    };
    let made = |ids: &[i64], marks: Option<&[bool]>| {
        let unit = unit(b"", vec![Cell::Ints(ids.to_vec())]);
        content("", vocabulary, unit, marks.map(<[bool]>::to_vec)).unwrap()
    };
    for ids in [&[250, 7][..], &[7], &[7, 256], &[250, 7, 256]] {
        assert_eq!(
            made(ids, None),
            Some(Content::Tokens(vec![250, 7])),
            "{ids:?}"
        );
    }
    let added = Content::Turns(vec![250, 7, 256], vec![false, true, false]);
    assert_eq!(made(&[7], Some(&[true])), Some(added));
    let own = Content::Turns(vec![250, 7, 256], vec![true, false, true]);
    assert_eq!(made(&[250, 7, 256], Some(&[true, false, true])), Some(own));
}

#[test]
fn lines_hold_lists_of_ids() {
    assert_eq!(line("{\"ids\":[1,2,299]}"), Ok(Some(vec![1, 2, 299])));
    assert_eq!(
        line("{\"x\":{\"ids\":3},\"ids\":[0],\"y\":[]}"),
        Ok(Some(vec![0]))
    );
    assert_eq!(line(" "), Ok(None));
    // One end token at the end is not doubled by the packer's.
    assert_eq!(
        line("{\"ids\":[256,5,256,256]}"),
        Ok(Some(vec![256, 5, 256]))
    );
    for (text, wanted) in [
        (
            "{\"ids\":[1,300]}",
            "id 300 at index 1 is not one of the 300",
        ),
        ("{\"ids\":[-1]}", "id -1 at index 0"),
        (
            "{\"ids\":[1,2.0]}",
            "not field \"ids\", whose item 1 is 2.0;",
        ),
        ("{\"ids\":[[1],[2]]}", "whose item 0 is [1]"),
        (
            "{\"ids\":[18446744073709551615]}",
            "whose item 0 is 18446744073709551615",
        ),
        (
            "{\"ids\":\"1 2\"}",
            "not field \"ids\", a string; name the right one in source.field",
        ),
        ("{\"ids\":null}", "null"),
        ("{\"ids\":[]}", "the document is empty"),
        ("{\"ids\":[256]}", "the document is empty"),
        ("{\"text\":\"a\"}", "no field \"ids\""),
        ("[1,2]", "broken JSON"),
        ("{\"ids\":[1,]}", "broken JSON"),
        ("{\"ids\":[1]} x", "broken JSON"),
    ] {
        let why = line(text).unwrap_err();
        assert!(why.contains(wanted), "{text}: {why}");
    }
}

#[test]
fn cells_hold_ids_or_say_what_they_are() {
    let cell = |cell| {
        let unit = unit(b"", vec![cell]);
        tokens(unit).map_err(|why| why.to_string())
    };
    assert_eq!(cell(Cell::Ints(vec![7, 256])), Ok(Some(vec![7])));
    assert_eq!(cell(Cell::Unsigned(vec![7, 256])), Ok(Some(vec![7])));
    let why = cell(Cell::Unsigned(vec![7, u64::MAX])).unwrap_err();
    assert!(
        why.contains("id 18446744073709551615 at index 1 is not one of the 300"),
        "{why}"
    );
    let why = cell(Cell::Floats(vec![1.0])).unwrap_err();
    assert!(why.contains("a column of fractions"), "{why}");
    let text = Unit {
        kind: UnitKind::Text,
        ..unit(b"1 2", Vec::new())
    };
    let why = tokens(text).unwrap_err();
    assert_eq!(why, Reason::NotIdFile);
}

proptest! {
    #[test]
    fn any_line_gives_ids_or_a_reason(text in "\\{\"ids\":[-0-9\\[\\]{}\",.e tnul]{0,40}\\}") {
        if let Ok(Some(ids)) = line(&text) {
            prop_assert!(ids.iter().all(|id| *id < 300));
        }
    }
}
