//! Properties of arrangements, over random documents and settings, and the cases at the edges.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

mod chain;

const SMALL: BalanceSettings = BalanceSettings {
    slices: 4,
    micro_batches: 2,
    tokens: 16,
    window: 2,
    by_cost: false,
};

/// Small settings of every kind.
fn settings() -> impl Strategy<Value = BalanceSettings> {
    let numbers = (1_u32..6, 1_u32..4, 1_u32..40, 1_u32..5, any::<bool>());
    numbers.prop_map(
        |(slices, micro_batches, tokens, window, by_cost)| BalanceSettings {
            slices,
            micro_batches,
            tokens,
            window,
            by_cost,
        },
    )
}

/// The cost of attention, with costs of arrays where they count.
fn document(settings: &BalanceSettings, tokens: u32, items: u32) -> Document {
    let linear = u64::from(tokens) * COST_OF_TOKEN;
    let items = if settings.by_cost {
        u64::from(items)
    } else {
        0
    };
    Document {
        tokens,
        cost: linear + u64::from(tokens).pow(2) * 4096 + items * COST_OF_TOKEN,
        carried: false,
    }
}

/// Settings and documents; some are empty, some as long as a bin, some dear.
fn windows() -> impl Strategy<Value = (BalanceSettings, Vec<Document>)> {
    settings().prop_flat_map(|settings| {
        let tokens = prop_oneof![
            0..=settings.tokens,
            0..=settings.tokens / 4,
            Just(settings.tokens),
            Just(settings.tokens / 2 + 1),
        ];
        let tokens = tokens.prop_map(move |tokens| tokens.min(settings.tokens));
        let items = prop_oneof![Just(0_u32), 0_u32..10, Just(1000_u32)];
        let document = (tokens, items).prop_map(move |(t, items)| document(&settings, t, items));
        let documents = prop::collection::vec(document, 0..300);
        (Just(settings), documents)
    })
}

/// The documents of each bin: by batch, slice and micro-batch.
fn bins(arrangement: &Arrangement) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    for batch in &arrangement.batches {
        for slice in 0..batch.slices() {
            all.extend((0..batch.micro_batches()).map(|micro| batch.bin(slice, micro).to_vec()));
        }
    }
    all
}

proptest! {
    /// A window that ended early is made again as one that may have no more batches than it had.
    #[test]
    fn a_window_has_the_same_bins_when_it_may_have_no_more_batches((settings, documents) in windows()) {
        let made = arrange(&settings, &documents, 7).unwrap();
        prop_assume!(!made.batches.is_empty());
        let window = made.batches.len() as u32;
        let again = arrange(&BalanceSettings { window, ..settings }, &documents, 7).unwrap();
        prop_assert_eq!(again, made);
    }
}

fn tokens(documents: &[Document], bin: &[u32]) -> u64 {
    bin.iter()
        .map(|d| u64::from(documents[*d as usize].tokens))
        .sum()
}

fn cost(documents: &[Document], bin: &[u32]) -> u64 {
    bin.iter().map(|d| documents[*d as usize].cost).sum()
}

proptest! {
    #[test]
    fn each_document_has_one_place((settings, documents) in windows()) {
        let arranged = arrange(&settings, &documents, 0).unwrap();
        let placed = bins(&arranged).concat();
        let mut all: Vec<u32> = placed.into_iter().chain(arranged.carried.clone()).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..arranged.taken as u32).collect::<Vec<_>>());
        prop_assert!(arranged.taken <= documents.len());
        prop_assert!(arranged.batches.len() <= settings.window as usize);
        prop_assert_eq!(bins(&arranged).len(), arranged.batches.len() * settings.bins());
    }

    #[test]
    fn no_bin_exceeds_its_capacity((settings, documents) in windows()) {
        let arranged = arrange(&settings, &documents, 0).unwrap();
        for bin in bins(&arranged) {
            prop_assert!(tokens(&documents, &bin) <= u64::from(settings.tokens));
            prop_assert!(bin.len() <= settings.tokens as usize);
            prop_assert!(bin.is_sorted());
        }
    }

    #[test]
    fn the_arrangement_depends_on_its_arguments_alone((settings, documents) in windows()) {
        let first = arrange(&settings, &documents, 7).unwrap();
        prop_assert_eq!(&first, &arrange(&settings, &documents, 7).unwrap());
        // The window is the same, whatever waits behind it.
        let more = [&documents[..], &documents[..]].concat();
        let whole = arrange(&settings, &more, 7).unwrap();
        if first.batches.len() == settings.window as usize && first.taken < documents.len() {
            prop_assert_eq!(first, whole);
        }
    }

    /// Documents of one size are alike, so their order in the stream does not matter.
    #[test]
    fn only_sizes_decide_the_bins((settings, documents) in windows(), by in 1_usize..300) {
        let settings = BalanceSettings { window: 1, ..settings };
        let mut fill = WindowFill::new(&settings);
        let mut few: Vec<Document> = documents.into_iter().take_while(|d| fill.take(d) && !fill.is_full()).collect();
        let shape = |documents: &[Document]| {
            let arranged = arrange(&settings, documents, 7).unwrap();
            let sizes = |bin: Vec<u32>| {
                let mut sizes: Vec<(u32, u64)> =
                    bin.iter().map(|d| documents[*d as usize]).map(|d| (d.tokens, d.cost)).collect();
                sizes.sort_unstable();
                sizes
            };
            bins(&arranged).into_iter().map(sizes).collect::<Vec<_>>()
        };
        let before = shape(&few);
        let middle = by % few.len().max(1);
        few.rotate_left(middle);
        few.reverse();
        if !settings.by_cost {
            prop_assert_eq!(before, shape(&few));
        }
    }

    #[test]
    fn the_cost_is_that_of_the_slices((settings, documents) in windows()) {
        let arranged = arrange(&settings, &documents, 0).unwrap();
        for batch in &arranged.batches {
            let slice = |slice| (0..batch.micro_batches()).map(|m| cost(&documents, batch.bin(slice, m))).sum();
            let slices: Vec<u64> = (0..batch.slices()).map(slice).collect();
            prop_assert_eq!(batch.cost.max, *slices.iter().max().unwrap());
            prop_assert_eq!(batch.cost.mean, slices.iter().sum::<u64>() / slices.len() as u64);
            let row = |m| (0..batch.slices()).map(|slice| cost(&documents, batch.bin(slice, m))).sum();
            let rows: Vec<u64> = (0..batch.micro_batches()).map(row).collect();
            prop_assert!(rows.is_sorted_by(|a, b| a >= b), "the dearest row comes first: {:?}", rows);
        }
    }
}

#[test]
fn nothing_makes_no_batch() {
    assert_eq!(arrange(&SMALL, &[], 0), Ok(Arrangement::default()));
}

#[test]
fn little_makes_one_batch_with_all_its_bins() {
    for count in [1, 3, 8] {
        for tokens in [0, 1, 16] {
            let documents = vec![document(&SMALL, tokens, 0); count];
            let arranged = arrange(&SMALL, &documents, 5).unwrap();
            assert_eq!(arranged.batches.len(), 1);
            let bins = bins(&arranged);
            assert_eq!(bins.len(), 8);
            assert_eq!(bins.iter().filter(|bin| bin.len() == 1).count(), count);
            assert_eq!((arranged.taken, arranged.carried.len()), (count, 0));
        }
    }
}

#[test]
fn empty_documents_spread() {
    let documents = vec![document(&SMALL, 0, 0); 1000];
    let arranged = arrange(&SMALL, &documents, 0).unwrap();
    assert_eq!(arranged.taken, 251, "each counts as a token");
    assert!(bins(&arranged).iter().all(|bin| bin.len() >= 15));
}

#[test]
fn a_document_longer_than_a_bin_is_an_error() {
    let documents = [document(&SMALL, 16, 0), document(&SMALL, 17, 0)];
    let expected = ArrangeError::LongDocument {
        index: 1,
        tokens: 17,
        capacity: 16,
    };
    assert_eq!(arrange(&SMALL, &documents, 0), Err(expected));
}

#[test]
fn costs_and_settings_have_bounds() {
    let dear = Document {
        cost: (1 << 52) + 1,
        ..Document::default()
    };
    assert!(arrange(&SMALL, &[dear], 0).is_ok());
    let sum = arrange(&SMALL, &[dear, dear], 0);
    assert_eq!(sum, Err(ArrangeError::CostOverflow));
    let error = |settings| arrange(&settings, &[], 0).unwrap_err().to_string();
    let none = BalanceSettings {
        micro_batches: 0,
        ..SMALL
    };
    assert_eq!(error(none), "micro_batches is 0: expected at least 1");
    let many = BalanceSettings {
        window: u32::MAX,
        slices: u32::MAX,
        ..SMALL
    };
    assert!(error(many).contains("too large"));
}

/// More than fits, and more than may be carried: the newest go back to the stream, never carried ones.
#[test]
fn few_documents_are_carried() {
    let settings = BalanceSettings {
        slices: 1100,
        micro_batches: 2,
        tokens: 10,
        window: 1,
        by_cost: false,
    };
    let mut documents = vec![document(&settings, 6, 0); 4000];
    documents[..500].iter_mut().for_each(|d| d.carried = true);
    let arranged = arrange(&settings, &documents, 0).unwrap();
    assert_eq!(arranged.taken, 2200 + CARRIED_MAX);
    assert_eq!(arranged.carried.len(), CARRIED_MAX);
    assert!(arranged.carried[0] >= 500);
}

/// The dearest batch of a window is the first, the second and so on about equally often.
#[test]
fn the_dearest_batch_has_no_fixed_place() {
    let settings = BalanceSettings { window: 4, ..SMALL };
    let lengths = (0..400_u32).map(|n| n * 7 % 17);
    let documents: Vec<Document> = lengths
        .map(|tokens| document(&settings, tokens, 0))
        .collect();
    let mut places = BTreeSet::new();
    for first in 0..40 {
        let arranged = arrange(&settings, &documents, first).unwrap();
        let means = arranged.batches.iter().map(|batch| batch.cost.mean);
        places.extend(means.enumerate().max_by_key(|(_, mean)| *mean));
    }
    let places: BTreeSet<usize> = places.into_iter().map(|(place, _)| place).collect();
    assert_eq!(places.len(), 4);
}
