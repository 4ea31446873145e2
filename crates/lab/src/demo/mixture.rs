//! The change of the mixture in the middle of a demo, as `batchweave mixture set` makes it.

use std::collections::BTreeMap;

use batchweave_core::ids::{ProducerName, RequestId, Seq};
use batchweave_core::manifest::entry::Mixture;
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_core::order::{MixtureSpec, NumberedMixture, Weight};
use batchweave_log::Log;

use super::DemoError;
use super::corpus::Corpus;
use super::order::{DemoChange, DemoShuffle, DemoSource};

/// The shuffle of every source, whose windows hold a whole group of the blocks of lines, and that of the rows of 16 batches.
pub(crate) const SHUFFLE: DemoShuffle = DemoShuffle {
    seed: 1,
    window: 8 << 20,
    rows: 16,
};
/// The weights of the sources before and after the change, in billionths.
const BEFORE: [u64; 2] = [300_000_000, 700_000_000];
const AFTER: [u64; 2] = [700_000_000, 300_000_000];
/// Batches of each producer between its last commit and the change.
const BATCHES_AHEAD: Seq = 8;

/// Returns the name of producer `index`.
pub(crate) fn producer_name(index: usize) -> String {
    format!("tokens-{index}")
}

/// Returns the sources of `corpus` with their weights.
pub(crate) fn sources(corpus: &Corpus) -> Vec<DemoSource> {
    let all = corpus.sources.iter().zip(BEFORE);
    all.map(|((name, files), weight)| DemoSource {
        name,
        files: files.clone(),
        weight,
    })
    .collect()
}

/// Changes the mixture of the producers that still work. `None` if none does, or there is one source only.
pub(crate) async fn change(
    log: &mut Log,
    sources: &[DemoSource],
    producers: usize,
) -> Result<Option<DemoChange>, DemoError> {
    if sources.len() < 2 {
        return Ok(None);
    }
    let weights: BTreeMap<String, Weight> = sources
        .iter()
        .zip(AFTER)
        .filter_map(|(source, weight)| Some((source.name.to_owned(), weight.try_into().ok()?)))
        .collect();
    let request = log.new_request();
    let mut set = None;
    let committed = log.commit_if("batchweave-demo", |m| {
        let from = begins(m);
        let entry = entry(request, m.mixture().id + 1, weights.clone(), from.clone());
        let none = from.is_empty();
        set = Some(from);
        Ok::<_, batchweave_log::LogError>((!none).then_some(entry))
    });
    let version = committed
        .await
        .map_err(|e| DemoError::Store(e.to_string()))?;
    let from = set.filter(|_| version.is_some()).unwrap_or_default();
    if from.is_empty() {
        return Ok(None);
    }
    let of = |n| {
        producer_name(n)
            .parse()
            .ok()
            .and_then(|name| from.get::<ProducerName>(&name).copied())
    };
    Ok(Some(DemoChange {
        from: (0..producers).map(of).collect(),
        weights: AFTER.to_vec(),
    }))
}

/// Builds the entry that begins a mixture for each of these producers.
fn entry(
    request: RequestId,
    id: u64,
    weights: BTreeMap<String, Weight>,
    from: BTreeMap<ProducerName, Seq>,
) -> Entry {
    let mixture = NumberedMixture {
        id,
        weights,
        from: from.clone(),
    };
    Entry::Mixture(Mixture {
        request,
        id,
        spec: MixtureSpec::default().with(mixture, 0).to_json(),
        from,
        why: None,
    })
}

fn begins(m: &Manifest) -> BTreeMap<ProducerName, Seq> {
    let open = m.producers().filter(|(_, state)| !state.finished);
    open.map(|(name, state)| (name.clone(), state.next_seq + BATCHES_AHEAD))
        .collect()
}
