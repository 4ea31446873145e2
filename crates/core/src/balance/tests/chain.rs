//! Windows one after another, as a producer makes them: what one carries, the next one places.

use super::*;

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
    batches: usize,
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
            batches: arranged.batches.len(),
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
            let (taken, capacity) = (window.taken_tokens, batch * window.batches as u64);
            let full = 100 * taken >= 98 * capacity || taken + longest > capacity;
            let last = at + 1 == windows.len() && window.batches == 1;
            prop_assert!(full || last, "{:?}", window);
        }
    }
}
