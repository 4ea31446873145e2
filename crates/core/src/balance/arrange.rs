//! The arrangement of a window: which documents it has, and in which batch, slice and bin each of them is.

use super::arrangement::{Arrangement, BalancedBatch, BinContents};
use super::bin::{NOWHERE, Placement};
use super::even::Evening;
use super::settings::{BalanceSettings, SettingsError, WindowFill};
use super::{CARRIED_MAX, Document, rows};
use crate::limits::NUMBER_MAX;
use crate::order::{Key, Permutation, Purpose};

/// Documents that can't be arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArrangeError {
    /// Settings that describe no window.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A document that no bin can hold; divide or cut it before.
    #[error(
        "document {index} of the window has {tokens} tokens, more than the {capacity} of a bin"
    )]
    LongDocument {
        index: usize,
        tokens: u32,
        capacity: u32,
    },
    /// Costs whose sum is not below the limit of numbers.
    #[error("the cost of a window exceeds the largest number: use smaller coefficients")]
    CostOverflow,
    /// More documents than have numbers.
    #[error("{documents} documents in a window: expected fewer than {NOWHERE}")]
    TooManyDocuments { documents: usize },
}

/// Arranges the documents that wait: first those that were carried, then others in stream order, at least until a window
/// is full ([`WindowFill`]) or the input has ended. `first_batch` is the number of the window's first batch.
///
/// Documents that do not fill the window make full batches, and those that are left are not taken; below one batch they
/// make a single one, which lacks tokens. So only the last batch of an input does.
pub fn arrange(
    settings: &BalanceSettings,
    documents: &[Document],
    first_batch: u64,
) -> Result<Arrangement, ArrangeError> {
    settings.check()?;
    check(settings, documents)?;
    if documents.is_empty() {
        return Ok(Arrangement::default());
    }
    let mut placement = place(settings, documents);
    let taken = placement.bin_of.len();
    let mut all_rows = rows::batches(settings, &placement.bins);
    let mut evening = Evening::new(settings, &documents[..taken], &mut placement);
    let costs: Vec<Vec<u64>> = all_rows
        .iter_mut()
        .map(|rows| evening.batch(rows))
        .collect();
    let contents = BinContents::new(placement.bins.len(), &placement.bin_of);
    let batch = |at: usize| BalancedBatch::new(&all_rows[at], &contents, &costs[at]);
    let carried = (0..).zip(&placement.bin_of);
    Ok(Arrangement {
        batches: emission_order(all_rows.len(), first_batch)
            .map(batch)
            .collect(),
        carried: carried
            .filter_map(|(index, bin)| (*bin == NOWHERE).then_some(index))
            .collect(),
        taken,
    })
}

fn check(settings: &BalanceSettings, documents: &[Document]) -> Result<(), ArrangeError> {
    let capacity = settings.tokens;
    let long = |document: &Document| document.tokens > capacity;
    if let Some(index) = documents.iter().position(long) {
        return Err(ArrangeError::LongDocument {
            index,
            tokens: documents[index].tokens,
            capacity,
        });
    }
    if u32::try_from(documents.len()).map_or(true, |number| number == NOWHERE) {
        return Err(ArrangeError::TooManyDocuments {
            documents: documents.len(),
        });
    }
    let mut costs = documents.iter().map(|document| document.cost);
    let sum = costs.try_fold(0, u64::checked_add);
    // The log has the costs of slices.
    sum.filter(|sum| *sum < NUMBER_MAX)
        .map(|_| ())
        .ok_or(ArrangeError::CostOverflow)
}

/// Decides the number of batches and documents, and places them.
fn place(settings: &BalanceSettings, documents: &[Document]) -> Placement {
    let mut fill = WindowFill::new(settings);
    for document in documents {
        fill.take(document);
    }
    let mut batches = fill.batches().max(1);
    let carried = documents.iter().take_while(|d| d.carried).count();
    let (mut taken, mut round) = (prefix(settings, documents, batches), 0);
    loop {
        let bins = batches as usize * settings.bins();
        let placement = Placement::new(settings, &documents[..taken], bins);
        let nowhere = placement.bin_of.iter().filter(|bin| **bin == NOWHERE);
        let excess = nowhere.count().saturating_sub(CARRIED_MAX);
        if batches < settings.window && placement.bin_of[..carried].contains(&NOWHERE) {
            // A smaller window than the one before: what that one carried must not wait again.
            batches += 1;
            // As in a window that may have no more batches than these.
            (taken, round) = (prefix(settings, documents, batches), 0);
        } else if excess > 0 && taken > carried {
            // More are returned in each round, so that there are few.
            taken = carried.max(taken.saturating_sub(excess << round));
            round += 1;
        } else {
            return placement;
        }
    }
}

/// Returns the number of documents that this number of batches takes.
fn prefix(settings: &BalanceSettings, documents: &[Document], batches: u32) -> usize {
    let mut fill = WindowFill::with_batches(settings, batches);
    documents.iter().take_while(|d| fill.take(d)).count()
}

/// Returns the batches of a window in the order of their emission, which depends on the number of its first batch: in
/// that of their making the first would always be the dearest.
fn emission_order(batches: usize, first_batch: u64) -> impl Iterator<Item = usize> {
    let key = Key::new(Purpose::Batches, "", &[first_batch]);
    let order = Permutation::new(key, batches as u64);
    (0..batches as u64).map(move |at| order.get(at) as usize)
}
