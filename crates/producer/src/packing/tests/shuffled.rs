//! Rows in shuffled order: the same rows as without, and the same batches from any point on, whatever the input has become.

use std::collections::{BTreeMap, BTreeSet};

use super::several::{Mode, documents};
use super::*;
use crate::packing::{Batches, RowShuffle, RowWindow, ShuffledRows};

const ROWS: Shape = Shape {
    slices: 2,
    rows_per_slice: 2,
    seq_len: 4,
};

/// Returns batches that come in this number of units, from number `next` on.
fn batches(units: u32, next: u64) -> Batches {
    Batches {
        shape: Shape {
            slices: ROWS.slices / units,
            ..ROWS
        },
        units: units as usize,
        next,
        limit: None,
    }
}

/// Returns the shuffle of windows of `window` batches.
fn of(mode: Mode, window: u64) -> RowShuffle {
    RowShuffle {
        seed: 5,
        tokens: window * ROWS.tokens() as u64,
        together: if mode == Mode::Pairs { 2 } else { 1 },
    }
}

/// Returns a packer whose windows have `window` batches; `next` is the number of the next one.
fn shuffled(mode: Mode, window: u64, units: u32, next: u64, from: Restart) -> ShuffledRows {
    let batches = batches(units, next);
    let inner = mode.packer(batches.shape, from.clone());
    ShuffledRows::new(inner, of(mode, window), batches, from)
}

/// Returns a row's tokens, what is learned of them, and its documents.
type Content = (Vec<u32>, Vec<bool>, Vec<(u64, u64, u64)>);

/// Returns the rows of batches.
fn rows_of(batches: &[PackedBatch]) -> Vec<Content> {
    let mut all = Vec::new();
    for batch in batches {
        let rows = rows(batch);
        let mut pieces = batch.sources.pieces.iter().peekable();
        for row in 0..rows.tokens.len() / rows.stride {
            let at = row * rows.stride..(row + 1) * rows.stride;
            let mut own: Vec<_> = pieces.next().into_iter().collect();
            own.extend(std::iter::from_fn(|| {
                pieces.next_if(|piece| !piece.new_row)
            }));
            let own = own.iter().map(|p| (p.unit, p.skip, p.items)).collect();
            all.push((
                rows.tokens[at.clone()].to_vec(),
                rows.learned[at].to_vec(),
                own,
            ));
        }
    }
    all
}

/// Returns the rows of a sequence, each with the token that it shares with the next.
fn rows_of_sequence(batches: &[PackedBatch]) -> Vec<Vec<u32>> {
    let width = ROWS.width();
    let of_batch = |batch: &PackedBatch| {
        let rows = rows(batch);
        let tokens = rows.tokens.clone();
        let begins = (0..ROWS.rows()).map(move |row| row * ROWS.seq_len as usize);
        begins
            .map(|at| tokens[at..at + width].to_vec())
            .collect::<Vec<_>>()
    };
    batches.iter().flat_map(of_batch).collect()
}

fn replayed_from(
    batches: &[PackedBatch],
    k: usize,
    documents: &[Document],
    packer: impl Fn(u64, Restart) -> ShuffledRows,
) -> Vec<PackedBatch> {
    let from = batches[k].next.clone();
    let at = from.at;
    pack(Box::new(packer(k as u64 + 1, from)), documents, at).0
}

proptest! {
    /// A restart after any batch makes the same batches, though the input has grown meanwhile.
    #[test]
    fn shuffled_rows_replay_from_any_point_though_more_input_has_come(
        units in prop::collection::vec(prop::collection::vec(0usize..30, 0..4), 1..30),
        mode in prop::sample::select(vec![Mode::Concat, Mode::BestFit, Mode::Pairs]),
        window in 2u64..5,
        known in 0usize..30,
    ) {
        let all = documents(mode, &units, false);
        let new = |next, from| shuffled(mode, window, 1, next, from);
        let (batches, full) = pack(Box::new(new(0, Restart::default())), &all, Point::default());
        for k in 0..full {
            prop_assert_eq!(&replayed_from(&batches, k, &all, new)[..], &batches[k + 1..], "after batch {}", k);
        }
        // The first process saw the input's beginning only.
        let known = documents(mode, &units[..known.min(units.len())], false);
        let (first, full) = pack(Box::new(new(0, Restart::default())), &known, Point::default());
        // Behind the end of what was known `pack` reads another pass.
        let read = |k: &usize| first[*k].next.at != Point::pass(1);
        for k in (0..full).filter(read) {
            let more = replayed_from(&first, k, &all, new);
            let window = first[k].next.window.map_or(0, |w| (w.batches - w.given) as usize);
            // Behind the window packing continues at the end of the input, or at the document that came there.
            let given = |batches: &[PackedBatch]| {
                let given = batches.iter().map(|b| (b.content.clone(), b.sources.clone(), b.own));
                given.collect::<Vec<_>>()
            };
            prop_assert_eq!(given(&more[..window]), given(&first[k + 1..][..window]), "after batch {}", k);
            let of = |batches: &[PackedBatch]| batches.iter().map(|b| b.own).sum::<u64>();
            let items: u64 = all.iter().map(|document| document.content.items()).sum();
            let given = of(&first[..=k]) + of(&more);
            // The first token of a sequence has none before it that would be its input.
            prop_assert!(given <= items && given + 1 >= items, "{} of {}", given, items);
        }
    }

    /// The rows are those of the packer inside, with their marks and documents.
    #[test]
    fn a_window_has_the_rows_of_the_packer_inside(
        units in prop::collection::vec(prop::collection::vec(0usize..30, 1..4), 1..30),
        mode in prop::sample::select(vec![Mode::BestFit, Mode::Pairs]),
        window in 2u64..5,
    ) {
        let all = documents(mode, &units, false);
        let plain = pack(mode.packer(ROWS, Restart::default()), &all, Point::default()).0;
        let mixed = pack(Box::new(shuffled(mode, window, 1, 0, Restart::default())), &all, Point::default()).0;
        let (mut plain, mut mixed) = (rows_of(&plain), rows_of(&mixed));
        plain.sort();
        mixed.sort();
        prop_assert_eq!(plain, mixed);
    }

    /// Slices of large batches are shuffled as whole batches are.
    #[test]
    fn slices_come_in_the_order_of_whole_batches(
        units in prop::collection::vec(prop::collection::vec(0usize..30, 1..4), 1..30),
        mode in prop::sample::select(vec![Mode::Concat, Mode::BestFit, Mode::Pairs]),
    ) {
        let all = documents(mode, &units, false);
        let whole = pack(Box::new(shuffled(mode, 3, 1, 0, Restart::default())), &all, Point::default());
        let slices = pack(Box::new(shuffled(mode, 3, 2, 0, Restart::default())), &all, Point::default());
        let (whole, slices) = (&whole.0[..whole.1], &slices.0[..2 * whole.1]);
        prop_assert_eq!(rows_of(whole), rows_of(slices));
        for (whole, slice) in whole.iter().zip(slices.iter().skip(1).step_by(2)) {
            prop_assert_eq!(&whole.next, &slice.next);
        }
    }
}

fn long_documents() -> Vec<Document> {
    documents(Mode::Concat, &vec![vec![7, 40]; 40], true)
}

#[test]
fn rows_of_a_sequence_stand_alone() {
    let all = long_documents();
    let (plain, full) = pack(concat(ROWS, Restart::default()), &all, Point::default());
    let packer = shuffled(Mode::Concat, 4, 1, 0, Restart::default());
    let (mixed, whole) = pack(Box::new(packer), &all, Point::default());
    assert_eq!(whole, full);
    let mut expected = rows_of_sequence(&plain[..full]);
    let found = rows_of(&mixed[..full]);
    assert_ne!(found[0].0, expected[0], "the order is another one");
    let mut tokens: Vec<_> = found.iter().map(|row| row.0.clone()).collect();
    tokens.sort();
    expected.sort();
    assert_eq!(tokens, expected);
    let starts: BTreeMap<u64, u32> = all
        .iter()
        .map(|document| match &document.content {
            super::super::Content::Tokens(tokens) => (document.place.unit, tokens[0]),
            _ => panic!("no text"),
        })
        .collect();
    for (tokens, learned, pieces) in found {
        assert_eq!(learned, [true; 5]);
        let named = pieces.iter().flat_map(|(unit, skip, items)| {
            let tokens = starts[unit] + *skip as u32..;
            tokens.take(*items as usize)
        });
        for (token, named) in tokens.iter().zip(named) {
            assert!(*token == named || *token == END, "{tokens:?} {pieces:?}");
        }
        assert_eq!(pieces.iter().map(|piece| piece.2).sum::<u64>(), 5);
    }
    // Padding and tokens are counted as without the shuffle.
    assert!(
        mixed[..full]
            .iter()
            .all(|batch| batch.padding() == 0 && batch.own == 16)
    );
}

/// Neighbouring rows are rarely of one document where the window is large beside it.
#[test]
fn large_windows_part_the_rows_of_a_long_document() {
    let neighbours = |window: u64| {
        let packer = shuffled(Mode::Concat, window, 1, 0, Restart::default());
        let (mixed, full) = pack(Box::new(packer), &long_documents(), Point::default());
        let rows = rows_of(&mixed[..full]);
        let in_row = |row: &Content| row.2.iter().map(|piece| piece.0).collect::<BTreeSet<_>>();
        let same = rows
            .windows(2)
            .filter(|pair| !in_row(&pair[0]).is_disjoint(&in_row(&pair[1])));
        same.count() as f64 / rows.len() as f64
    };
    let (narrow, wide) = (neighbours(2), neighbours(32));
    assert!(wide < 0.25 && narrow > 0.4, "{narrow} {wide}");
}

/// The deliberate mistake: without the number of documents a window that ended with the input becomes another one.
#[test]
fn a_window_without_its_number_of_documents_becomes_another_one() {
    // Two of the first fill a row, and one of them with one of the others fills it better.
    let sizes = [vec![vec![1]; 32], vec![vec![2]; 40]].concat();
    let all = documents(Mode::BestFit, &sizes, true);
    let new = |next, from| shuffled(Mode::BestFit, 9, 1, next, from);
    let known = &all[..32];
    let (first, _) = pack(
        Box::new(new(0, Restart::default())),
        known,
        Point::default(),
    );
    let from = first[0].next.clone();
    assert!(
        from.window.unwrap().documents.is_some(),
        "it ended with the input"
    );
    let contents = |batches: &[PackedBatch]| {
        let of_window = batches.iter().take(first.len() - 1);
        of_window.map(|b| b.content.clone()).collect::<Vec<_>>()
    };
    let again = |from: Restart| contents(&pack(Box::new(new(1, from)), &all, Point::default()).0);
    assert_eq!(again(from.clone()), contents(&first[1..]));
    let mistaken = Restart {
        window: from.window.map(|window| RowWindow {
            documents: None,
            ..window
        }),
        ..from
    };
    assert_ne!(again(mistaken), contents(&first[1..]));
}

#[test]
fn a_window_ends_where_the_limit_of_batches_does() {
    let batches = Batches {
        limit: Some(3),
        ..batches(1, 0)
    };
    let inner = Mode::Concat.packer(ROWS, Restart::default());
    let mut packer = ShuffledRows::new(inner, of(Mode::Concat, 8), batches, Restart::default());
    long_documents()
        .into_iter()
        .try_for_each(|document| packer.push(document))
        .unwrap();
    let batches: Vec<_> = std::iter::from_fn(|| packer.pop()).take(3).collect();
    assert_eq!(batches[0].next.window.unwrap().batches, 3);
    assert_eq!(batches[2].next.window, None);
}

#[test]
fn a_restart_behind_the_limit_misses_no_row() {
    let all = long_documents();
    let new = |next, from| shuffled(Mode::Concat, 8, 1, next, from);
    let (made, _) = pack(Box::new(new(0, Restart::default())), &all, Point::default());
    let batches = Batches {
        limit: Some(1),
        ..batches(1, 1)
    };
    let from = made[0].next.clone();
    let inner = Mode::Concat.packer(ROWS, from.clone());
    let mut again = ShuffledRows::new(inner, of(Mode::Concat, 8), batches, from);
    again.end(Point::pass(1)).unwrap();
    assert_eq!(again.pop(), None);
}

#[test]
fn a_window_that_lingers_ends_with_the_batches_it_has_and_stays_so() {
    let all = long_documents();
    let mut packer = shuffled(Mode::Concat, 8, 1, 0, Restart::default());
    all.iter()
        .take(3)
        .for_each(|document| packer.push(document.clone()).unwrap());
    assert!(packer.pop().is_none() && packer.can_flush());
    packer.flush().unwrap();
    let first: Vec<_> = std::iter::from_fn(|| packer.pop()).collect();
    assert_eq!(first.len(), 3);
    assert!(!packer.can_flush());
    let again = replayed_from(&first, 0, &all, |next, from| {
        shuffled(Mode::Concat, 8, 1, next, from)
    });
    assert_eq!(again[..2], first[1..]);
}

#[test]
fn input_that_no_longer_fills_a_window_is_refused() {
    let all = long_documents();
    let new = |next, from| shuffled(Mode::Concat, 8, 1, next, from);
    let (batches, _) = pack(Box::new(new(0, Restart::default())), &all, Point::default());
    let mut packer = new(1, batches[0].next.clone());
    all.iter()
        .take(3)
        .for_each(|document| packer.push(document.clone()).unwrap());
    let why = packer.end(Point::pass(1)).unwrap_err().to_string();
    assert!(
        why.contains("batches 0 to 7") && why.contains("only 3 of these 8"),
        "{why}"
    );
}
