//! Rows as docs/format.md defines them, and the same batches from any point on, in every mode.

use proptest::prelude::*;

use super::*;

mod balanced;
mod bins;
mod forms;
mod several;
mod shuffled;
mod sources;
mod stages;

const SHAPE: Shape = Shape {
    slices: 2,
    rows_per_slice: 1,
    seq_len: 3,
};
const END: u32 = 99;
const PAD: u32 = 7;
const ADDED: AddedTokens = AddedTokens { end: END, pad: PAD };

fn place(unit: u64) -> Place {
    Place {
        file: 0,
        unit,
        offset: unit * 10,
    }
}

/// Returns values that name the document.
fn columns(unit: u64) -> ColumnValues {
    [unit.to_le_bytes(), (1000 + unit).to_le_bytes()].into()
}

fn document(unit: u64, tokens: &[u32]) -> Document {
    Document {
        pass: 0,
        place: place(unit),
        within: Within::default(),
        content: Content::Tokens(tokens.to_vec()),
        columns: Some(columns(unit)),
        arrays: Vec::new(),
    }
}

fn concat(shape: Shape, from: Restart) -> Box<dyn Packer> {
    Box::new(Concat::new(shape, ADDED, from.at, true))
}

fn best_fit(shape: Shape, look_ahead: usize, from: Restart) -> Box<dyn Packer> {
    Box::new(BestFit::new(shape, ADDED, look_ahead, from))
}

/// Returns all batches from the start of `packer`, the last one filled up, and the number of full ones.
fn pack(
    mut packer: Box<dyn Packer>,
    documents: &[Document],
    from: Point,
) -> (Vec<PackedBatch>, usize) {
    let mut batches = Vec::new();
    let rest = documents
        .iter()
        .filter(|d| (d.pass, d.place.unit) >= (from.pass, from.unit));
    for d in rest {
        packer.push(d.clone()).unwrap();
        batches.extend(std::iter::from_fn(|| packer.pop()));
    }
    packer.end(Point::pass(1)).unwrap();
    batches.extend(std::iter::from_fn(|| packer.pop()));
    let full = batches.len();
    batches.extend(packer.rest(false));
    (batches, full)
}

fn rows(batch: &PackedBatch) -> &Rows {
    match &batch.content {
        BatchContent::Rows(rows) => rows,
        BatchContent::Bins(_) | BatchContent::Samples(_) => panic!("no rows"),
    }
}

#[test]
fn neighbouring_batches_share_one_token() {
    let documents = [
        document(0, &[1, 2, 3, 4]),
        document(1, &[5, 6]),
        document(2, &[7, 8, 9, 10, 11]),
    ];
    let (batches, full) = pack(
        concat(SHAPE, Restart::default()),
        &documents,
        Point::default(),
    );
    assert_eq!((batches.len(), full), (3, 2));
    assert_eq!(rows(&batches[0]).tokens, [1, 2, 3, 4, END, 5, 6]);
    assert_eq!(rows(&batches[1]).tokens, [6, END, 7, 8, 9, 10, 11]);
    let next = |unit, skip| {
        Restart::from(Point {
            skip,
            ..Point::at(0, place(unit))
        })
    };
    assert_eq!(batches[0].next, next(1, 1));
    assert_eq!(batches[1].next, next(2, 4));
    assert_eq!(rows(&batches[2]).tokens, [11, END, PAD, PAD, PAD, PAD, PAD]);
    assert_eq!(
        (batches[2].own, &batches[2].next),
        (1, &Point::pass(1).into())
    );
}

#[test]
fn nothing_new_makes_no_last_batch() {
    let (batches, full) = pack(
        concat(SHAPE, Restart::default()),
        &[document(0, &[1, 2, 3, 4, 5, 6])],
        Point::default(),
    );
    assert_eq!((batches.len(), full), (1, 1));
    assert_eq!(
        pack(concat(SHAPE, Restart::default()), &[], Point::default()).0,
        []
    );
    assert_eq!(
        pack(
            best_fit(SHAPE, 4, Restart::default()),
            &[],
            Point::default()
        )
        .0,
        []
    );
}

#[test]
fn a_document_that_is_not_the_cursors_is_refused() {
    let start = Point {
        skip: 3,
        ..Point::default()
    };
    for packer in [concat, |shape, from| best_fit(shape, 4, from)] {
        for other in [document(1, &[1, 2, 3, 4]), document(0, &[1, 2])] {
            let why = packer(SHAPE, start.into()).push(other).unwrap_err();
            assert!(
                why.to_string().contains("line or row 1 of input file 1"),
                "{why}"
            );
        }
        let fits = document(0, &[1, 2, 3]);
        packer(SHAPE, start.into()).push(fits).unwrap();
    }
}

#[test]
fn the_oldest_goes_first_and_the_longest_that_fits_beside_it() {
    let shape = Shape {
        slices: 1,
        rows_per_slice: 2,
        seq_len: 7,
    };
    // With their end tokens: 4, 5, 2, 3, 9 (divided at 8), 1.
    let lengths = [3, 4, 1, 2, 8, 0];
    let documents: Vec<Document> = (0..)
        .zip(lengths)
        .map(|(unit, n)| document(unit, &vec![unit as u32 + 1; n]))
        .collect();
    let (batches, full) = pack(
        best_fit(shape, 4, Restart::default()),
        &documents,
        Point::default(),
    );
    assert_eq!(full, 2);
    // From four pieces, beside the oldest of 4: 3 is the longest that fits in 4, then none in 1.
    let first = [1, 1, 1, END, 4, 4, END, PAD];
    // From the oldest of 5, with 2, 8 and 2 in view: the older of the two, then the last of 1.
    let second = [2, 2, 2, 2, END, 3, END, PAD];
    assert_eq!(rows(&batches[0]).tokens, [first, second].concat());
    assert_eq!(batches[0].own, 14);
    let third = [5; 8];
    // The second piece begins with the token that the first one ends with.
    let fourth = [5, END, END, PAD, PAD, PAD, PAD, PAD];
    assert_eq!(rows(&batches[1]).tokens, [third, fourth].concat());
    assert_eq!(batches[1].own, 10);
    assert_eq!(batches[1].next, Point::pass(1).into());
}

fn documents(lengths: &[usize]) -> Vec<Document> {
    let mut next = 100;
    let document = |(unit, n): (usize, &usize)| {
        next += *n as u32;
        document(unit as u64, &(next - *n as u32..next).collect::<Vec<_>>())
    };
    lengths.iter().enumerate().map(document).collect()
}

/// Restarts after batch `k`, from the cursor as the log stores it.
fn replayed(
    all: &[PackedBatch],
    k: usize,
    documents: &[Document],
    new: impl Fn(Restart) -> Box<dyn Packer>,
) -> Vec<PackedBatch> {
    let mut next = all[k].next.clone();
    next.placed = Placed::try_from(String::from(next.placed)).unwrap();
    let at = next.at;
    pack(new(next), documents, at).0
}

proptest! {
    /// Restarted anywhere, any number of times, the batches are those of one run, and those of the definition in
    /// concat.rs.
    #[test]
    fn concat_replays_from_any_point(
        lengths in prop::collection::vec(0usize..23, 1..40),
        slices in 1u32..4, rows_per_slice in 1u32..3, seq_len in 1u32..6,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
    ) {
        let shape = Shape { slices, rows_per_slice, seq_len };
        let documents = documents(&lengths);
        let sequence: Vec<u32> = documents.iter().flat_map(|d| match &d.content {
            Content::Tokens(tokens) => tokens.iter().copied().chain([END]),
            _ => unreachable!(),
        }).collect();
        let (all, full) = pack(concat(shape, Restart::default()), &documents, Point::default());
        let advance = shape.tokens();
        prop_assert_eq!(full, (sequence.len() - 1) / advance);
        for (k, batch) in all[..full].iter().enumerate() {
            prop_assert_eq!(&rows(batch).tokens[..], &sequence[k * advance..=(k + 1) * advance]);
        }
        for cut in cuts {
            if full == 0 { break; }
            let k = cut.index(full);
            prop_assert_eq!(&replayed(&all, k, &documents, |from| concat(shape, from))[..], &all[k + 1..]);
        }
    }

    /// The same for `best_fit`. Each token is in the rows once, and once more where a later piece of its document
    /// begins; a document that fits in a row is one piece.
    #[test]
    fn best_fit_replays_from_any_point(
        lengths in prop::collection::vec(0usize..23, 1..60),
        slices in 1u32..3, rows_per_slice in 1u32..3, seq_len in 1u32..12, look_ahead in 1usize..20,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
    ) {
        let shape = Shape { slices, rows_per_slice, seq_len };
        let documents = documents(&lengths);
        let new = |from| best_fit(shape, look_ahead, from);
        let (all, full) = pack(new(Restart::default()), &documents, Point::default());
        for cut in cuts {
            if full == 0 { break; }
            let k = cut.index(full);
            prop_assert_eq!(&replayed(&all, k, &documents, new)[..], &all[k + 1..]);
        }
        let width = shape.width();
        let mut pieces = vec![Vec::new(); lengths.len()];
        for batch in &all {
            let rows = rows(batch);
            prop_assert_eq!(rows.tokens.len(), shape.rows() * width);
            let mut covered = 0;
            for s in &rows.segments {
                let from = s.row * width + s.start;
                pieces[s.document.1 as usize].push(rows.tokens[from..from + s.tokens].to_vec());
                covered += s.tokens;
            }
            prop_assert_eq!(rows.tokens.len() - rows.tokens.iter().filter(|t| **t == PAD).count(), covered);
        }
        let own: u64 = all.iter().map(|batch| batch.own).sum();
        prop_assert_eq!(own, lengths.iter().map(|n| *n as u64 + 1).sum::<u64>());
        for (document, mut pieces) in documents.iter().zip(pieces) {
            let Content::Tokens(mut tokens) = document.content.clone() else { unreachable!() };
            tokens.push(END);
            prop_assert!(pieces.len() == 1 || tokens.len() > width);
            pieces.sort();
            let mut joined: Vec<u32> = Vec::new();
            for piece in pieces {
                let shared = usize::from(!joined.is_empty());
                joined.extend(&piece[shared..]);
            }
            prop_assert_eq!(joined, tokens);
        }
    }

    /// Documents keep their arrays, also those that the restart finds placed.
    #[test]
    fn arrays_replay_from_any_point(
        lengths in prop::collection::vec((0usize..8, 0usize..5), 1..60),
        slices in 1u32..3, rows_per_slice in 1u32..3, look_ahead in 1usize..20,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
    ) {
        let shape = Shape { slices, rows_per_slice, seq_len: 8 };
        let tokens: Vec<usize> = lengths.iter().map(|(tokens, _)| *tokens).collect();
        let documents: Vec<Document> = documents(&tokens).into_iter().zip(&lengths).map(|(d, (_, items))| Document {
            arrays: vec![vec![d.place.unit as u8; *items].into(), vec![1].into()],
            ..d
        }).collect();
        let new = |from| best_fit(shape, look_ahead, from);
        let (all, full) = pack(new(Restart::default()), &documents, Point::default());
        for cut in cuts {
            if full == 0 { break; }
            let k = cut.index(full);
            prop_assert_eq!(&replayed(&all, k, &documents, new)[..], &all[k + 1..]);
        }
        let segments: Vec<_> = all.iter().flat_map(|batch| &rows(batch).segments).collect();
        prop_assert_eq!(segments.len(), documents.len());
        for segment in segments {
            let document = &documents[segment.document.1 as usize];
            prop_assert_eq!(&segment.arrays, &document.arrays);
        }
    }

    #[test]
    fn samples_replay_from_any_point(
        lengths in prop::collection::vec(0usize..9, 1..40),
        slices in 1u32..4, rows_per_slice in 1u32..3,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
    ) {
        let shape = Shape { slices, rows_per_slice, seq_len: 1 };
        let documents: Vec<Document> = lengths.iter().enumerate().map(|(unit, n)| Document {
            pass: 0,
            place: place(unit as u64),
            within: Within::default(),
            content: Content::Sample(vec![vec![unit as u8; *n].into()]),
            columns: None,
            arrays: Vec::new(),
        }).collect();
        let new = |from: Restart| -> Box<dyn Packer> { Box::new(Samples::new(shape, from.at)) };
        let (all, full) = pack(new(Restart::default()), &documents, Point::default());
        prop_assert_eq!(full, lengths.len() / shape.rows());
        let own: u64 = all.iter().map(|batch| batch.own).sum();
        prop_assert_eq!(own, lengths.len() as u64);
        for cut in cuts {
            if full == 0 { break; }
            let k = cut.index(full);
            prop_assert_eq!(&replayed(&all, k, &documents, new)[..], &all[k + 1..]);
        }
    }
}
