//! Rows as the page says, and the same batches from any point on.

use proptest::prelude::*;

use super::*;

const SHAPE: Shape = Shape {
    slices: 2,
    rows_per_slice: 1,
    seq_len: 3,
};
const END: u32 = 99;

fn document(unit: u64, tokens: &[u32]) -> Tokens {
    let place = Place {
        file: 0,
        unit,
        offset: unit * 10,
    };
    Tokens {
        pass: 0,
        place,
        tokens: tokens.to_vec(),
    }
}

fn pack(shape: Shape, documents: &[Tokens], from: Point) -> (Vec<Batch>, Packer) {
    let mut packer = Packer::new(shape, END, from);
    let mut batches = Vec::new();
    for d in documents
        .iter()
        .filter(|d| (d.pass, d.place.unit) >= (from.pass, from.unit))
    {
        packer.push(d.clone()).unwrap();
        while let Some(batch) = packer.pop() {
            batches.push(batch);
        }
    }
    (batches, packer)
}

#[test]
fn neighbouring_batches_share_one_token() {
    let documents = [
        document(0, &[1, 2, 3, 4]),
        document(1, &[5, 6]),
        document(2, &[7, 8, 9, 10, 11]),
    ];
    let (batches, packer) = pack(SHAPE, &documents, Point::default());
    assert_eq!(batches.len(), 2);
    assert_eq!(batches[0].tokens, [1, 2, 3, 4, END, 5, 6]);
    assert_eq!(batches[1].tokens, [6, END, 7, 8, 9, 10, 11]);
    assert_eq!(
        batches[0].next,
        Point {
            pass: 0,
            file: 0,
            unit: 1,
            offset: 10,
            skip: 1
        }
    );
    assert_eq!(
        batches[1].next,
        Point {
            pass: 0,
            file: 0,
            unit: 2,
            offset: 20,
            skip: 4
        }
    );
    let last = packer.finish(0, Point::pass(1)).unwrap();
    assert_eq!((last.tokens, last.own), (vec![11, END, 0, 0, 0, 0, 0], 1));
    assert_eq!(last.next, Point::pass(1));
}

#[test]
fn nothing_new_makes_no_last_batch() {
    let (batches, packer) = pack(SHAPE, &[document(0, &[1, 2, 3, 4, 5, 6])], Point::default());
    assert_eq!(batches.len(), 1);
    assert_eq!(packer.waiting(), 1);
    assert_eq!(packer.finish(0, Point::pass(1)), None);
    assert_eq!(
        Packer::new(SHAPE, END, Point::default()).finish(0, Point::pass(1)),
        None
    );
}

#[test]
fn a_document_that_is_not_the_cursors_is_refused() {
    let start = Point {
        skip: 3,
        ..Point::default()
    };
    for other in [document(1, &[1, 2, 3, 4]), document(0, &[1, 2])] {
        let why = Packer::new(SHAPE, END, start).push(other).unwrap_err();
        assert!(
            why.to_string().contains("line or row 1 of input file 1"),
            "{why}"
        );
    }
    Packer::new(SHAPE, END, start)
        .push(document(0, &[1, 2, 3]))
        .unwrap();
}

proptest! {
    /// Cut anywhere, any number of times: the batches are those of one uncut run, and those of the
    /// definition at the top of the page.
    #[test]
    fn any_point_replays_to_the_same_batches(
        lengths in prop::collection::vec(0usize..23, 1..40),
        slices in 1u32..4, rows_per_slice in 1u32..3, seq_len in 1u32..6,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
    ) {
        let shape = Shape { slices, rows_per_slice, seq_len };
        let mut next = 100;
        let documents: Vec<Tokens> = lengths.iter().enumerate().map(|(unit, n)| {
            next += *n as u32;
            document(unit as u64, &(next - *n as u32..next).collect::<Vec<_>>())
        }).collect();
        let sequence: Vec<u32> = documents.iter().flat_map(|d| d.tokens.iter().copied().chain([END])).collect();
        let (all, rest) = pack(shape, &documents, Point::default());
        let advance = shape.tokens();
        prop_assert_eq!(all.len(), (sequence.len() - 1) / advance);
        for (k, batch) in all.iter().enumerate() {
            prop_assert_eq!(&batch.tokens[..], &sequence[k * advance..=(k + 1) * advance]);
        }
        let padded = rest.finish(7, Point::pass(1));
        for cut in cuts {
            if all.is_empty() { break; }
            let k = cut.index(all.len());
            let (again, rest) = pack(shape, &documents, all[k].next);
            prop_assert_eq!(&again[..], &all[k + 1..]);
            prop_assert_eq!(&rest.finish(7, Point::pass(1)), &padded);
        }
    }
}
