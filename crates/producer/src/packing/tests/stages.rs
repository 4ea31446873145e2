//! Hand-overs between packers: every token once over all stages, the batches before a stage as without it, and the same
//! batches from any restart, also inside a hand-over and where a stage was learned late.

use std::collections::BTreeMap;

use batchweave_core::balance::{BalanceSettings, CostModel, CostSpec};

use super::*;
use crate::packing::{Balanced, Balancing, Batches};

/// A stage: its first batch, its shape, and its packer.
type Stage = (u64, Shape, Packing);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Packing {
    Concat,
    /// Whole documents, chosen from this number of pieces.
    BestFit(usize),
    /// Bins, in windows of this number of batches.
    Balanced(u32),
}

/// Returns the packer of a stage that starts at `from` with batch `next`.
fn packer_of((_, shape, packing): Stage, from: Restart, next: u64) -> Box<dyn Packer> {
    match packing {
        Packing::Concat => Box::new(Concat::new(shape, ADDED, from, true)),
        Packing::BestFit(look_ahead) => Box::new(BestFit::new(shape, ADDED, look_ahead, from)),
        Packing::Balanced(window) => {
            let batches = Batches {
                next,
                ..Batches::from_start(shape, shape.slices)
            };
            Box::new(Balanced::new(balancing(shape, window), batches, from))
        }
    }
}

fn balancing(shape: Shape, window: u32) -> Balancing {
    Balancing {
        settings: BalanceSettings {
            slices: shape.slices,
            micro_batches: shape.rows_per_slice,
            tokens: shape.seq_len,
            window,
            by_cost: false,
        },
        cost: CostModel::new(&CostSpec::attention(16.0), &[]).unwrap(),
        item_bytes: Vec::new(),
        split: true,
        end: END,
    }
}

fn at(stages: &[Stage], seq: u64) -> Stage {
    *stages.iter().rfind(|stage| stage.0 <= seq).unwrap()
}

/// Returns the packer that goes on at `from` with batch `next`, as the pipeline makes it.
fn begin(stages: &[Stage], from: Restart, next: u64) -> Box<dyn Packer> {
    let mut states = from.packers();
    let begun = states.iter().find_map(|(first, _)| *first);
    let earliest = at(stages, begun.unwrap_or(next).saturating_sub(1));
    if next > 0 && at(stages, next).0 == next {
        let last = states.last().unwrap().1.clone();
        states.push((Some(next), last.handed_over(next)));
    }
    let firsts = states.iter().skip(1).filter_map(|(first, _)| *first);
    let nexts: Vec<u64> = firsts.chain([next]).collect();
    let of = |((first, state), next): ((Option<u64>, Restart), u64)| {
        packer_of(
            first.map_or(earliest, |first| at(stages, first)),
            state,
            next,
        )
    };
    let mut packers = states.into_iter().zip(nexts).map(of);
    let first = packers.next().unwrap();
    Box::new(HandingOver::new(first, packers.collect()))
}

/// Returns the batches from `next` on, the last one filled up.
fn batches(
    stages: &[Stage],
    documents: &[Document],
    from: &Restart,
    next: u64,
) -> Vec<PackedBatch> {
    flushed_batches(stages, documents, (from, next), |_| false)
}

/// Returns these batches where windows end with each document that `flushes` names.
fn flushed_batches(
    stages: &[Stage],
    documents: &[Document],
    (from, next): (&Restart, u64),
    flushes: impl Fn(u64) -> bool,
) -> Vec<PackedBatch> {
    let rest = documents.iter().filter(|d| d.place.unit >= from.at.unit);
    let mut packer = begin(stages, from.clone(), next);
    let (mut all, mut ended) = (Vec::new(), None);
    let mut events: Vec<Option<Document>> = rest.cloned().map(Some).collect();
    events.push(None);
    for event in events {
        if let Some(document) = event {
            let unit = document.place.unit;
            packer.push(document).unwrap();
            if flushes(unit) {
                packer.flush().unwrap();
            }
        } else {
            packer.end(Point::pass(1)).unwrap();
            ended = Some(Point::pass(1));
        }
        while let Some(batch) = packer.pop() {
            let seq = next + all.len() as u64 + 1;
            let behind = batch.next.clone();
            all.push(batch);
            if at(stages, seq).0 == seq {
                let mut later = packer_of(at(stages, seq), behind.handed_over(seq), seq);
                for range in packer.hand_over() {
                    later.push_range(range).unwrap();
                }
                ended.map_or(Ok(()), |end| later.end(end)).unwrap();
                packer = later;
            }
        }
    }
    all.extend(packer.rest(false));
    all
}

/// How often each token of a document is in a batch: as the first of a row or batch, and behind another one.
type Counts = BTreeMap<(u64, u64), (u32, u32)>;

/// Checks the tokens of each row against the documents, and that each one is learned from once.
fn check(stages: &[Stage], documents: &[Document], all: &[PackedBatch]) -> Result<(), String> {
    let mut counts = Counts::new();
    for (seq, batch) in (0..).zip(all) {
        let shape = at(stages, seq).1;
        let (tokens, start): (&[u32], Box<dyn Fn(usize) -> usize>) = match &batch.content {
            BatchContent::Rows(rows) => (&rows.tokens, Box::new(|row| row * shape.width())),
            BatchContent::Bins(bins) => {
                let ends: Vec<usize> = bins.ends.iter().map(|end| end.token).collect();
                let start = move |bin: usize| bin.checked_sub(1).map_or(0, |bin| ends[bin]);
                (&bins.tokens, Box::new(start))
            }
            BatchContent::Samples(_) => unreachable!(),
        };
        let mut place = 0;
        let mut row = None;
        for piece in &batch.sources.pieces {
            if batch.sources.form == Form::Rows && piece.new_row {
                row = Some(row.map_or(0, |row: usize| row + 1));
                place = start(row.unwrap());
            }
            let is_first = batch.sources.form == Form::Rows || place == 0;
            for n in 0..piece.items {
                let key = (piece.unit, piece.skip + n);
                let Content::Tokens(own) = &documents[piece.unit as usize].content else {
                    unreachable!()
                };
                let wanted = own.get(key.1 as usize).copied().unwrap_or(END);
                if key.1 > own.len() as u64 || tokens[place] != wanted {
                    return Err(format!("batch {seq} has another token than {key:?}"));
                }
                let count = counts.entry(key).or_default();
                if n == 0 && is_first {
                    count.0 += 1;
                } else {
                    count.1 += 1;
                }
                place += 1;
            }
        }
    }
    for document in documents {
        let Content::Tokens(tokens) = &document.content else {
            unreachable!()
        };
        for n in 0..=tokens.len() as u64 {
            let key = (document.place.unit, n);
            match counts.get(&key) {
                Some((_, 1)) => {}
                Some((1, 0)) if n == 0 => {}
                // A sequence of one token has nothing to predict: it is in no batch.
                None if tokens.is_empty() && Some(document) == documents.last() => {}
                found => return Err(format!("token {key:?} was given {found:?}")),
            }
        }
    }
    Ok(())
}

fn documents(lengths: &[u32]) -> Vec<Document> {
    let numbered = (0..).zip(lengths);
    let tokens = |unit: u64, length: u32| {
        (0..length)
            .map(|n| 100 + unit as u32 * 1000 + n)
            .collect::<Vec<_>>()
    };
    numbered
        .map(|(unit, length)| document(unit, &tokens(unit, *length)))
        .collect()
}

fn shape(seq_len: u32, rows_per_slice: u32) -> Shape {
    Shape {
        slices: 2,
        rows_per_slice,
        seq_len,
    }
}

/// A hand-over as a cursor stores it.
fn stored(next: &Restart) -> Restart {
    let left = next.left.as_ref().map(|left| {
        let text = serde_json::to_string(left).unwrap();
        serde_json::from_str(&text).unwrap()
    });
    Restart {
        left,
        ..next.clone()
    }
}

fn check_run(lengths: &[u32], stages: &[Stage]) -> Result<(), String> {
    let documents = documents(lengths);
    let all = batches(stages, &documents, &Restart::default(), 0);
    check(stages, &documents, &all)?;
    for stage in &stages[1..] {
        let before: Vec<Stage> = stages.iter().copied().filter(|s| s.0 < stage.0).collect();
        let without = batches(&before, &documents, &Restart::default(), 0);
        let border = usize::try_from(stage.0).unwrap();
        if all.len() > border && all[..border] != without[..border] {
            return Err(format!(
                "the batches before {border} depend on the stage behind them"
            ));
        }
    }
    for (done, batch) in (1..).zip(&all) {
        let again = batches(stages, &documents, &stored(&batch.next), done as u64);
        if let Some(n) = (done..all.len()).find(|n| again.get(n - done) != Some(&all[*n])) {
            let (found, wanted) = (again.get(n - done), &all[n]);
            return Err(format!(
                "from {:?} after {done}: batch {n} is {found:?}, not {wanted:?}",
                batch.next
            ));
        }
    }
    Ok(())
}

/// Where windows ended because nothing came, a restart makes the batches that it was sure of: those of rows, and the next one
/// of a window of bins.
fn check_flushed(lengths: &[u32], stages: &[Stage], every: u64) -> Result<(), String> {
    let documents = documents(lengths);
    let start = (&Restart::default(), 0);
    let all = flushed_batches(stages, &documents, start, |unit| unit.is_multiple_of(every));
    check(stages, &documents, &all)?;
    for (done, batch) in (1..).zip(&all) {
        let now = at(stages, done as u64);
        let begins = now.0 == done as u64;
        let next = match (now.2, &batch.next.window) {
            (Packing::Balanced(_), None) => continue,
            (Packing::Balanced(_), Some(_)) if begins => continue,
            (Packing::Balanced(_), Some(_)) => done + 1,
            _ => {
                let ends = stages.iter().find(|stage| stage.0 > done as u64);
                ends.map_or(all.len(), |stage| stage.0 as usize)
            }
        };
        let again = batches(stages, &documents, &stored(&batch.next), done as u64);
        let sure = &all[done..next.clamp(done, all.len())];
        if again.get(..sure.len()) != Some(sure) {
            return Err(format!("from {:?} after {done}: other batches", batch.next));
        }
    }
    Ok(())
}

fn any_stage() -> impl Strategy<Value = (u64, u32, u32, Packing)> {
    let packing = prop_oneof![
        Just(Packing::Concat),
        (1..12_usize).prop_map(Packing::BestFit),
        (1..4_u32).prop_map(Packing::Balanced),
    ];
    (1..5_u64, 2..12_u32, 1..3_u32, packing)
}

fn in_order(made: Vec<(u64, u32, u32, Packing)>) -> Vec<Stage> {
    let mut first = 0;
    let numbered = made.into_iter().enumerate();
    numbered
        .map(|(n, (after, seq_len, rows, packing))| {
            first += if n == 0 { 0 } else { after };
            (first, shape(seq_len, rows), packing)
        })
        .collect()
}

fn any_lengths() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![0..6_u32, 0..40_u32], 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn each_token_is_given_once_over_all_stages_from_any_restart(
        lengths in any_lengths(),
        made in prop::collection::vec(any_stage(), 1..4),
    ) {
        check_run(&lengths, &in_order(made)).unwrap();
    }

    #[test]
    fn each_token_is_given_once_where_windows_end_early(
        lengths in any_lengths(),
        made in prop::collection::vec(any_stage(), 1..4),
        every in 1..20_u64,
    ) {
        check_flushed(&lengths, &in_order(made), every).unwrap();
    }
}

#[test]
fn what_best_fit_left_in_the_middle_of_a_document_is_packed_first() {
    // Rows of 5: document 0 is pieces of 5, 5 and 3 tokens, and document 1 fills up the row of its end.
    let documents = documents(&[10, 1, 3, 3, 9, 9]);
    let stages = [
        (0, shape(4, 1), Packing::BestFit(6)),
        (1, shape(6, 1), Packing::Concat),
    ];
    let all = batches(&stages, &documents, &Restart::default(), 0);
    assert!(all[1].next.left.is_some() || all[0].next.left.is_none());
    check(&stages, &documents, &all).unwrap();
}

#[test]
fn what_a_window_has_not_given_is_unmade_in_the_order_of_documents() {
    // Windows of three batches of two bins, of which the first batch is given.
    let documents = documents(&[7, 7, 7, 7, 7, 7, 7, 7]);
    let stages = [
        (0, shape(8, 1), Packing::Balanced(3)),
        (1, shape(8, 1), Packing::Concat),
    ];
    let all = batches(&stages, &documents, &Restart::default(), 0);
    check(&stages, &documents, &all).unwrap();
    let left = all[1].next.left.as_ref().unwrap();
    assert_eq!((left.first, left.given), (1, 16));
    let window = left.window.unwrap();
    assert_eq!((window.first, window.batches, window.given), (0, 3, 1));
    let given: Vec<u64> = all[0]
        .sources
        .pieces
        .iter()
        .map(|piece| piece.unit)
        .collect();
    let unmade: Vec<u64> = all[1..]
        .iter()
        .flat_map(|batch| &batch.sources.pieces)
        .map(|piece| piece.unit)
        .collect();
    assert!(unmade.is_sorted() && unmade.iter().all(|unit| !given.contains(unit)));
}

/// The tokens that were given may end with a range, before the next one is known.
#[test]
fn a_restart_behind_a_whole_range_has_no_piece_of_it() {
    let stages = [
        (0, shape(4, 2), Packing::Balanced(2)),
        (1, shape(3, 1), Packing::Concat),
    ];
    check_run(&[9, 2, 3, 4, 4, 17], &stages).unwrap();
}

#[test]
fn a_window_behind_a_hand_over_ends_when_nothing_comes() {
    let documents = documents(&[10, 1, 3, 3, 9, 9, 30]);
    let stages = [
        (0, shape(4, 1), Packing::BestFit(6)),
        (1, shape(4, 1), Packing::Balanced(30)),
    ];
    let all = batches(&stages, &documents, &Restart::default(), 0);
    let mut packer = begin(&stages, stored(&all[0].next), 1);
    let mut left = documents.into_iter();
    let full = left.find(|document| {
        packer.push(document.clone()).unwrap();
        packer.can_flush()
    });
    assert!(full.is_some() && packer.pop().is_none());
    packer.flush().unwrap();
    assert!(packer.pop().is_some());
}
