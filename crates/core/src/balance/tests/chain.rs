//! Windows one after another, as a producer makes them: what one carries, the next one places.

use std::f64::consts::TAU;

use super::*;
use crate::tgb::SliceCost;

/// A document of the stream that waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    document: Document,
    number: usize,
    /// Windows that carried it.
    late: u32,
}

/// A window of a chain: its batches, the tokens that it took, and the documents that it placed.
#[derive(Debug)]
struct Window {
    costs: Vec<SliceCost>,
    taken_tokens: u64,
    placed: Vec<usize>,
    late: u32,
}

/// Arranges a whole stream. `early` ends each window at this number of documents, as an idle input does.
fn chain(settings: &BalanceSettings, stream: &[Document], early: Option<usize>) -> Vec<Window> {
    let numbered = stream.iter().enumerate();
    let mut waiting: Vec<Waiting> = numbered
        .map(|(number, document)| Waiting {
            document: *document,
            number,
            late: 0,
        })
        .collect();
    let mut windows = Vec::new();
    while !waiting.is_empty() {
        let mut fill = WindowFill::new(settings);
        let full = waiting
            .iter()
            .take_while(|w| fill.take(&w.document))
            .count();
        let carried = waiting.iter().filter(|w| w.document.carried).count();
        let offered = early.map_or(full, |early| full.min(early.max(carried)));
        let documents: Vec<Document> = waiting[..offered].iter().map(|w| w.document).collect();
        let arranged = arrange(settings, &documents, windows.len() as u64).unwrap();
        let placed: Vec<&Waiting> = bins(&arranged)
            .concat()
            .iter()
            .map(|d| &waiting[*d as usize])
            .collect();
        assert!(!placed.is_empty(), "the chain must end");
        let again = arranged.carried.iter().map(|d| waiting[*d as usize]);
        let again = again.map(|w| Waiting {
            document: Document {
                carried: true,
                ..w.document
            },
            late: w.late + 1,
            ..w
        });
        let left: Vec<Waiting> = again
            .chain(waiting[arranged.taken..].iter().copied())
            .collect();
        windows.push(Window {
            costs: arranged.batches.iter().map(|batch| batch.cost).collect(),
            taken_tokens: documents[..arranged.taken].iter().map(Document::room).sum(),
            placed: placed.iter().map(|w| w.number).collect(),
            late: placed.iter().map(|w| w.late).max().unwrap_or(0),
        });
        waiting = left;
    }
    windows
}

proptest! {
    /// Each document is given once, and at most one window late. The contract allows two.
    #[test]
    fn no_document_is_late_or_lost((settings, stream) in windows(), early in prop::option::of(1_usize..60)) {
        let windows = chain(&settings, &stream, early);
        let mut given: Vec<usize> = windows.iter().flat_map(|w| w.placed.clone()).collect();
        given.sort_unstable();
        prop_assert_eq!(given, (0..stream.len()).collect::<Vec<_>>());
        for window in windows {
            prop_assert!(window.late <= 1, "{:?}", window);
        }
    }

    /// Where documents are short enough to fit, only the last batch of an input lacks tokens.
    #[test]
    fn only_the_last_batch_is_short((settings, stream) in windows()) {
        let short = |d: &Document| document(&settings, d.tokens / 8, 0);
        let stream: Vec<Document> = stream.iter().map(short).collect();
        let windows = chain(&settings, &stream, None);
        let batch = settings.bins() as u64 * u64::from(settings.tokens);
        let longest = u64::from(settings.tokens / 8).max(1);
        for (at, window) in windows.iter().enumerate() {
            let (taken, capacity) = (window.taken_tokens, batch * window.costs.len() as u64);
            let full = 100 * taken >= 98 * capacity || taken + longest > capacity;
            let last = at + 1 == windows.len() && window.costs.len() == 1;
            prop_assert!(full || last, "{:?}", window);
        }
    }
}

/// Returns documents with lognormal lengths of this median, as many as reach `tokens`. Longer ones than a bin are divided.
fn lognormal(settings: &BalanceSettings, median: f64, sigma: f64, tokens: u64) -> Vec<Document> {
    let model = CostModel::new(&CostSpec::attention(16_384.0), &[]).unwrap();
    let (mut documents, mut given, mut state) = (Vec::new(), 0, 1_u64);
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    };
    while given < tokens {
        let normal = (-2.0 * uniform().ln()).sqrt() * (TAU * uniform()).cos();
        let mut left = (median * (sigma * normal).exp()).round().clamp(1.0, 4e6) as u32;
        given += u64::from(left);
        while left > 0 {
            let tokens = left.min(settings.tokens);
            documents.push(Document {
                tokens,
                cost: model.cost(tokens, &[]).unwrap(),
                carried: false,
            });
            left -= tokens;
        }
    }
    documents
}

/// The goals of docs/performance.md, for 64 slices of 4 bins of 16,384 tokens: instructions with answers, whose mean is 900
/// tokens and one of 1,400 longer than a bin. Of fewer than 200 steps the 99th percentile is the least even one or two.
#[test]
fn slices_of_documents_with_common_lengths_cost_the_same() {
    let settings = BalanceSettings {
        slices: 64,
        micro_batches: 4,
        tokens: 16_384,
        window: 8,
        by_cost: false,
    };
    let all = 208 * settings.bins() as u64 * u64::from(settings.tokens);
    let windows = chain(&settings, &lognormal(&settings, 490.0, 1.1, all), None);
    let whole = windows.iter().filter(|window| window.costs.len() == 8);
    let costs = whole.flat_map(|window| &window.costs);
    let mut over: Vec<f64> = costs
        .map(|cost| cost.max as f64 / cost.mean as f64)
        .collect();
    over.sort_by(f64::total_cmp);
    assert!(over.len() >= 200, "{}", over.len());
    let mean = over.iter().sum::<f64>() / over.len() as f64;
    let p99 = over[over.len() * 99 / 100];
    println!("the dearest slice over the mean: {mean:.4}, p99 {p99:.4}");
    // The goals are 1.012 and 1.05; without `even` the figures are 1.009 and 1.041.
    assert!(mean <= 1.004 && p99 <= 1.025, "{mean} {p99}");
}
