//! Bins: each document once, and the same batches from any point on, whatever the input has become.

use std::collections::BTreeMap;

use batchweave_core::balance::{BalanceSettings, CostModel, CostSpec};

use super::several::{Mode, documents};
use super::*;
use crate::packing::{Balanced, Balancing, Batches, Bins, RowWindow};

/// Bins of this size make the smallest documents rest in windows, and the largest be divided.
const BIN: u32 = 12;

pub(super) fn balancing(window: u32, by_cost: bool) -> Balancing {
    let arrays = BTreeMap::from([("image".to_owned(), 3.0)]);
    let spec = CostSpec {
        arrays: if by_cost { arrays } else { BTreeMap::new() },
        ..CostSpec::attention(16.0)
    };
    Balancing {
        settings: BalanceSettings {
            slices: 2,
            micro_batches: 2,
            tokens: BIN,
            window,
            by_cost,
        },
        cost: CostModel::new(&spec, if by_cost { &["image"] } else { &[] }).unwrap(),
        item_bytes: if by_cost { vec![2] } else { Vec::new() },
        split: true,
        end: END,
    }
}

pub(super) fn batches(units: u32, next: u64) -> Batches {
    Batches {
        shape: Shape {
            slices: 2 / units,
            rows_per_slice: 2,
            seq_len: BIN,
        },
        units: units as usize,
        next,
        limit: None,
    }
}

fn packer(window: u32, next: u64, from: Restart) -> Balanced {
    Balanced::new(balancing(window, false), batches(1, next), from)
}

fn bins(batch: &PackedBatch) -> &Bins {
    match &batch.content {
        BatchContent::Bins(bins) => bins,
        _ => panic!("no bins"),
    }
}

/// Returns the batches behind batch `k`, made again from its state.
fn replayed_from(
    all: &[PackedBatch],
    k: usize,
    documents: &[Document],
    packer: impl Fn(u64, Restart) -> Balanced,
) -> Vec<PackedBatch> {
    let from = all[k].next.clone();
    let at = from.at;
    pack(Box::new(packer(k as u64 + 1, from)), documents, at).0
}

/// Returns tokens and marks of each document by its unit, put together from its pieces; each token must be there once.
fn put_together(batches: &[PackedBatch]) -> BTreeMap<u64, Vec<u32>> {
    let mut parts: BTreeMap<(u64, u64), Vec<u32>> = BTreeMap::new();
    for batch in batches {
        let bins = bins(batch);
        let placed = batch.sources.placed(BIN.into(), bins.ends.len() as u64);
        assert_eq!(placed.len(), bins.segments.len());
        for ((row, at, piece), segment) in placed.iter().zip(&bins.segments) {
            assert_eq!((*row, *at), (segment.row as u64, segment.start as u64));
            assert_eq!(
                (piece.unit, piece.items as usize),
                (segment.document.1, segment.tokens)
            );
            let bin = row
                .checked_sub(1)
                .map_or(0, |bin| bins.ends[bin as usize].token);
            let from = bin + segment.start;
            let own = bins.tokens[from..from + segment.tokens].to_vec();
            let again = usize::from(segment.goes_on);
            assert!(!bins.learned[from], "nothing predicts the first token");
            let skip = piece.skip + again as u64;
            assert!(
                parts
                    .insert((piece.unit, skip), own[again..].to_vec())
                    .is_none()
            );
        }
        assert!(
            bins.ends
                .iter()
                .scan(0, |last, end| {
                    let tokens = end.token - *last;
                    *last = end.token;
                    Some(tokens)
                })
                .all(|tokens| tokens <= BIN as usize)
        );
        let own: usize = bins
            .segments
            .iter()
            .map(|s| s.tokens - usize::from(s.goes_on))
            .sum();
        assert_eq!(batch.own, own as u64);
    }
    let mut whole: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for ((unit, skip), tokens) in parts {
        let document = whole.entry(unit).or_default();
        assert_eq!(document.len() as u64, skip, "unit {unit}");
        document.extend(tokens);
    }
    whole
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![0usize..5, 0usize..14, Just(7usize), Just(40usize)];
    prop::collection::vec(size, 1..60)
}

proptest! {
    /// Each token of each document is in one bin, with the last batch filled up or not.
    #[test]
    fn each_token_is_in_one_bin(sizes in sizes(), window in 1u32..4) {
        let units: Vec<_> = sizes.iter().map(|size| vec![*size]).collect();
        let all = documents(Mode::BestFit, &units, false);
        let (made, full) = pack(Box::new(packer(window, 0, Restart::default())), &all, Point::default());
        prop_assert!(made.len() <= full + 1);
        let found = put_together(&made);
        for document in &all {
            let Content::Tokens(tokens) = &document.content else { panic!("no text") };
            let mut tokens = tokens.clone();
            tokens.push(END);
            prop_assert_eq!(found.get(&document.place.unit), Some(&tokens));
        }
    }

    /// A restart after any batch makes the same batches, though the input has grown meanwhile.
    #[test]
    fn bins_replay_from_any_point_though_more_input_has_come(
        units in prop::collection::vec(prop::collection::vec(0usize..30, 0..4), 1..40),
        mode in prop::sample::select(vec![Mode::BestFit, Mode::Pairs]),
        window in 1u32..5,
        known in 0usize..40,
    ) {
        let all = documents(mode, &units, false);
        let new = |next, from| packer(window, next, from);
        let (made, full) = pack(Box::new(new(0, Restart::default())), &all, Point::default());
        for k in 0..full {
            prop_assert_eq!(&replayed_from(&made, k, &all, new)[..], &made[k + 1..], "after batch {}", k);
        }
        // The first process saw the input's beginning only.
        let known = documents(mode, &units[..known.min(units.len())], false);
        let (first, full) = pack(Box::new(new(0, Restart::default())), &known, Point::default());
        for k in 0..full {
            let more = replayed_from(&first, k, &all, new);
            let window = first[k].next.window.map_or(0, |w| (w.batches - w.given) as usize);
            prop_assert_eq!(&more[..window], &first[k + 1..][..window], "after batch {}", k);
            let of = |batches: &[PackedBatch]| batches.iter().map(|b| b.own).sum::<u64>();
            let items: u64 = all.iter().map(|document| document.content.items()).sum();
            prop_assert_eq!(of(&first[..=k]) + of(&more), items, "after batch {}", k);
        }
    }

    /// Slices of large batches hold what whole batches do.
    #[test]
    fn slices_of_bins_come_in_the_order_of_whole_batches(sizes in sizes(), window in 1u32..4) {
        let units: Vec<_> = sizes.iter().map(|size| vec![*size]).collect();
        let all = documents(Mode::BestFit, &units, false);
        let whole = pack(Box::new(packer(window, 0, Restart::default())), &all, Point::default()).0;
        let mut sliced = Balanced::new(balancing(window, false), batches(2, 0), Restart::default());
        for document in &all {
            sliced.push(document.clone()).unwrap();
        }
        sliced.end(Point::pass(1)).unwrap();
        let mut units: Vec<_> = std::iter::from_fn(|| sliced.pop()).collect();
        if let Some(rest) = sliced.rest(false) {
            units.extend([rest, sliced.blank()]);
        }
        prop_assert_eq!(units.len(), 2 * whole.len());
        for (whole, units) in whole.iter().zip(units.chunks(2)) {
            let mut joined = bins(&units[0]).clone();
            joined.append(bins(&units[1]).clone());
            prop_assert_eq!(&joined, bins(whole));
            prop_assert_eq!(&units[1].next, &whole.next);
            prop_assert_eq!(units.iter().map(|unit| unit.own).sum::<u64>(), whole.own);
        }
    }
}

/// Documents of which some are carried: two of 7 tokens do not fit in a bin of 12.
fn carried_documents() -> Vec<Document> {
    documents(Mode::BestFit, &vec![vec![6]; 50], true)
}

#[test]
fn a_restart_without_its_carried_pieces_gives_some_twice() {
    let all = carried_documents();
    let new = |next, from| packer(1, next, from);
    let (made, _) = pack(Box::new(new(0, Restart::default())), &all, Point::default());
    let from = made[3].next.clone();
    assert!(!from.carried.is_empty());
    let again = |from: Restart| {
        let at = from.at;
        pack(Box::new(new(4, from)), &all, at).0
    };
    assert_eq!(again(from.clone()), made[4..]);
    let mistaken = Restart {
        carried: Carried::default(),
        ..from
    };
    assert_ne!(again(mistaken), made[4..]);
}

#[test]
fn a_restart_waits_for_its_carried_pieces_and_notices_a_missing_one() {
    let all = carried_documents();
    let new = |next, from| packer(1, next, from);
    let (made, _) = pack(Box::new(new(0, Restart::default())), &all, Point::default());
    let from = made[3].next.clone();
    let known = from.carried.bound();
    let at = all
        .iter()
        .position(|d| d.point().is_document(from.at))
        .unwrap();
    let mut again = new(4, from);
    for document in &all[at..at + known as usize - 1] {
        again.push(document.clone()).unwrap();
        assert!(again.replays() && !again.can_flush() && again.pop().is_none());
    }
    let why = again.end(Point::pass(1)).unwrap_err().to_string();
    let expected = format!("it counts {known} documents");
    assert!(why.contains(&expected), "{why}");
}

/// The deliberate mistake: without the number of pieces a window that ended with the input becomes another one.
#[test]
fn a_window_without_its_number_of_pieces_becomes_another_one() {
    let all = carried_documents();
    let new = |next, from| packer(4, next, from);
    let mut mistakes = 0;
    for known in 9..40 {
        let known = &all[..known];
        let (first, full) = pack(
            Box::new(new(0, Restart::default())),
            known,
            Point::default(),
        );
        for k in 0..full - 1 {
            let from = first[k].next.clone();
            let Some(window) = from.window.filter(|window| window.documents.is_some()) else {
                continue;
            };
            let again = |from: Restart| {
                let at = from.at;
                let made = pack(Box::new(new(k as u64 + 1, from)), &all, at).0;
                made.into_iter().next().map(|batch| batch.content)
            };
            let expected = Some(first[k + 1].content.clone());
            assert_eq!(again(from.clone()), expected);
            let mistaken = Restart {
                window: Some(RowWindow {
                    documents: None,
                    ..window
                }),
                ..from
            };
            mistakes += u32::from(again(mistaken) != expected);
        }
    }
    assert!(mistakes > 0);
}

#[test]
fn a_window_of_bins_that_lingers_ends_with_the_batches_it_has_and_stays_so() {
    let all = documents(Mode::BestFit, &vec![vec![5]; 60], true);
    let mut own = packer(8, 0, Restart::default());
    let some = all.iter().take(20);
    some.for_each(|document| own.push(document.clone()).unwrap());
    assert!(own.pop().is_none() && own.can_flush());
    own.flush().unwrap();
    let first: Vec<_> = std::iter::from_fn(|| own.pop()).collect();
    assert_eq!(first.len(), 2);
    assert!(!own.can_flush());
    let again = replayed_from(&first, 0, &all, |next, from| packer(8, next, from));
    assert_eq!(again[..1], first[1..]);
}

#[test]
fn a_window_of_bins_ends_where_the_limit_of_batches_does() {
    let batches = Batches {
        limit: Some(3),
        ..batches(1, 0)
    };
    let mut packer = Balanced::new(balancing(8, false), batches, Restart::default());
    let all = documents(Mode::BestFit, &vec![vec![5]; 60], true);
    for document in all {
        packer.push(document).unwrap();
    }
    let made: Vec<_> = std::iter::from_fn(|| packer.pop()).take(3).collect();
    assert_eq!(made[0].next.window.unwrap().batches, 3);
    assert_eq!(made[2].next.window, None);
}

/// A producer that was killed behind its last batch reads nothing more, also inside a window, where the limit was lowered.
#[test]
fn a_restart_behind_the_limit_misses_no_piece_of_bins() {
    let all = documents(Mode::BestFit, &vec![vec![5]; 60], true);
    let (made, _) = pack(
        Box::new(packer(4, 0, Restart::default())),
        &all,
        Point::default(),
    );
    for done in 1..=4 {
        let batches = Batches {
            limit: Some(done),
            ..batches(1, done)
        };
        let from = made[done as usize - 1].next.clone();
        let mut again = Balanced::new(balancing(4, false), batches, from.clone());
        again.end(Point::pass(1)).unwrap();
        assert_eq!(again.pop(), None);
        let mut unlimited = packer(4, done, from);
        assert!(unlimited.end(Point::pass(1)).is_err(), "{done}");
    }
}

#[test]
fn large_arrays_end_a_window_at_whole_batches() {
    let mut all = documents(Mode::BestFit, &vec![vec![5]; 60], true);
    for document in &mut all {
        document.arrays = vec![vec![1; 10].into()];
    }
    let new = |next, from| Balanced::new(balancing(8, true), batches(1, next), from);
    let (made, full) = pack(Box::new(new(0, Restart::default())), &all, Point::default());
    let window = made[0].next.window.unwrap();
    assert!((2..8).contains(&window.batches), "{window:?}");
    assert!(window.documents.is_some(), "it ended before it was full");
    for k in 0..full {
        assert_eq!(
            replayed_from(&made, k, &all, new)[..],
            made[k + 1..],
            "after batch {k}"
        );
    }
}

#[test]
fn input_that_no_longer_fills_a_window_of_bins_is_refused() {
    let all = documents(Mode::BestFit, &vec![vec![5]; 60], true);
    let new = |next, from| packer(4, next, from);
    let (made, _) = pack(Box::new(new(0, Restart::default())), &all, Point::default());
    let mut again = new(1, made[0].next.clone());
    let some = all.iter().take(9);
    some.for_each(|document| again.push(document.clone()).unwrap());
    let why = again.end(Point::pass(1)).unwrap_err().to_string();
    assert!(why.contains("batches 0 to 3"), "{why}");
}
