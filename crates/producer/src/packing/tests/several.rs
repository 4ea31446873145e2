//! Several documents of one unit, as a function makes them: the same batches from any point on, in every mode, and the
//! same as of units of their own.

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Concat,
    BestFit,
    Pairs,
    Samples,
}

impl Mode {
    pub(super) fn packer(self, shape: Shape, from: Restart) -> Box<dyn Packer> {
        match self {
            Self::Concat => concat(shape, from),
            Self::BestFit => best_fit(shape, 5, from),
            Self::Pairs => Box::new(Pairs::new(shape, PAD, from.at)),
            Self::Samples => Box::new(Samples::new(shape, from.at)),
        }
    }

    fn content(self, first: u32, items: usize) -> Content {
        let tokens: Vec<u32> = (first..).take(items).collect();
        let answer = |more: u32| Answer {
            tokens: vec![first, more],
            learned: vec![false, true],
        };
        match self {
            Self::Concat | Self::BestFit => Content::Tokens(tokens),
            Self::Pairs => Content::Pair(Box::new([answer(1), answer(2)])),
            Self::Samples => Content::Sample(vec![vec![first as u8; items].into()]),
        }
    }
}

/// Returns the documents of `units`, which are given as the sizes of their documents.
pub(super) fn documents(mode: Mode, units: &[Vec<usize>], own_units: bool) -> Vec<Document> {
    let mut documents = Vec::new();
    let mut first = 0;
    for (unit, sizes) in (0..).zip(units) {
        let mut within = Within::default();
        for (n, size) in (1..).zip(sizes) {
            let content = mode.content(first, *size);
            first += 100;
            let items = content.items();
            within.more = n < sizes.len();
            documents.push(Document {
                pass: 0,
                place: place(if own_units { u64::from(first) } else { unit }),
                within: if own_units { Within::default() } else { within },
                content,
                columns: None,
                arrays: Vec::new(),
            });
            within.before += items;
        }
    }
    documents
}

/// Returns the content of batches, without the places of their documents.
fn contents(batches: &[PackedBatch]) -> Vec<(BatchContent, u64)> {
    let content = |batch: &PackedBatch| {
        let mut content = batch.content.clone();
        if let BatchContent::Rows(rows) = &mut content {
            let segments = rows.segments.iter_mut();
            segments.for_each(|segment| segment.document = (0, 0));
        }
        (content, batch.own)
    };
    batches.iter().map(content).collect()
}

proptest! {
    #[test]
    fn several_documents_of_a_unit_replay_from_any_point(
        units in prop::collection::vec(prop::collection::vec(0usize..9, 0..5), 1..20),
        mode in prop::sample::select(vec![Mode::Concat, Mode::BestFit, Mode::Pairs, Mode::Samples]),
        slices in 1u32..3,
    ) {
        let shape = Shape { slices, rows_per_slice: 2, seq_len: 4 };
        let own = documents(mode, &units, false);
        let new = |from| mode.packer(shape, from);
        let (all, full) = pack(new(Restart::default()), &own, Point::default());
        let apart = documents(mode, &units, true);
        let apart = pack(new(Restart::default()), &apart, Point::default()).0;
        prop_assert_eq!(contents(&all), contents(&apart));
        for k in 0..full {
            prop_assert_eq!(&replayed(&all, k, &own, new)[..], &all[k + 1..], "after batch {}", k);
        }
        let items: u64 = own.iter().map(|document| document.content.items()).sum();
        let pieces = all.iter().flat_map(|batch| &batch.sources.pieces);
        let end = pieces.map(|piece| piece.skip + piece.items).max().unwrap_or(0);
        prop_assert!(end <= items, "{} of {} items", end, items);
    }
}

#[test]
fn a_unit_with_fewer_documents_after_a_restart_is_refused() {
    let unit = |sizes: &[usize]| documents(Mode::Concat, &[sizes.to_vec()], false);
    let cursor = Point {
        skip: 7,
        ..Point::at(0, place(0))
    };
    let push = |documents: &[Document]| -> Result<(), Mismatch> {
        let mut packer = concat(SHAPE, cursor.into());
        documents.iter().try_for_each(|d| packer.push(d.clone()))
    };
    push(&unit(&[2, 2, 2])).unwrap();
    push(&unit(&[8])).unwrap();
    let why = push(&unit(&[2, 2])).unwrap_err().to_string();
    assert!(why.contains("leaves out 7 tokens"), "{why}");
    // The next unit comes before the cursor's document did.
    let other = documents(Mode::Concat, &[vec![], vec![9]], false);
    push(&other).unwrap_err();
}
