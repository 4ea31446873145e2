//! Comparison of snapshots and index segments with the fold, and of bundles with the records: all are copies of
//! information in the log.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context;
use batchweave_core::ids::Version;
use batchweave_core::keys;
use batchweave_core::limits::SEGMENT_STEPS;
use batchweave_core::manifest::{Manifest, Segment};
use batchweave_log::get_fitting;
use batchweave_store::{Store, found};
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;

use crate::fold::Folding;
use crate::{Problem, bundles};

/// Segments read at a time.
const READS: usize = 16;

/// The result of the comparison.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Copies {
    /// Snapshots that equal the fold.
    pub(crate) snapshots: Vec<Version>,
    /// Segments that equal the fold.
    pub(crate) segments: u64,
    /// Segments of readable steps that are not stored: readers compute them from the log.
    pub(crate) segments_not_stored: Vec<u64>,
    /// Bundles whose records are those of the log.
    pub(crate) bundles: u64,
}

/// Folds to the head and compares each copy on the way.
pub(crate) async fn check(
    store: &Arc<dyn Store>,
    folding: &mut Folding,
    problems: &mut Vec<Problem>,
    mut show: impl FnMut(Version),
) -> Result<Copies, CliError> {
    let listed = context::list(store.as_ref(), keys::SNAPSHOTS).await?;
    let versions: BTreeSet<Version> = listed
        .iter()
        .filter_map(|o| keys::snapshot_version(&o.key))
        .collect();
    let mut copies = Copies::default();
    let mut missing = Vec::new();
    for version in versions.into_iter().map(Some).chain([None]) {
        let end = version.map_or(Version::MAX, |v| v.saturating_add(1));
        loop {
            let (segments, at_end) = folding.window(end).await?;
            copies.segments += compare(store, folding, segments, &mut missing, problems).await?;
            show(folding.manifest().next_version());
            if at_end {
                break;
            }
        }
        if let Some(version) = version {
            snapshot(store, folding.manifest(), version, &mut copies, problems).await?;
        }
    }
    let stream = folding.manifest().stream_id();
    copies.bundles = bundles::check(store, stream, problems).await?;
    let watermark = folding.manifest().watermark();
    missing.retain(|segment| (segment + 1) * SEGMENT_STEPS > watermark);
    copies.segments_not_stored = missing;
    Ok(copies)
}

async fn snapshot(
    store: &Arc<dyn Store>,
    folded: &Manifest,
    version: Version,
    copies: &mut Copies,
    problems: &mut Vec<Problem>,
) -> Result<(), CliError> {
    let key = keys::snapshot(version);
    let stream = Arc::new(folded.stream().clone());
    let read = get_fitting(store.as_ref(), &key, |bytes| {
        if folded.next_version() != version.saturating_add(1) {
            return Err("the log has no such version".to_owned());
        }
        match Manifest::from_snapshot(Arc::clone(&stream), bytes, version) {
            Ok(stored) if stored == *folded => Ok(()),
            Ok(_) => Err("differs from what the log folds to".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    });
    let why = match found(read.await)? {
        // Removed since the listing: there are newer ones.
        None => return Ok(()),
        Some(Ok(())) => {
            copies.snapshots.push(version);
            return Ok(());
        }
        Some(Err(why)) => why,
    };
    let why = format!("{why}; delete it: the next reader of the log writes a new one");
    problems.push(Problem::at("snapshot", key, why));
    Ok(())
}

/// Returns how many of these segments are stored and equal the fold; appends the others to `missing` or
/// `problems`.
async fn compare(
    store: &Arc<dyn Store>,
    folding: &Folding,
    segments: Vec<Segment>,
    missing: &mut Vec<u64>,
    problems: &mut Vec<Problem>,
) -> Result<u64, CliError> {
    let stream = folding.manifest().stream_id();
    let least = folding.manifest().stream().first_step();
    let reads = segments.into_iter().map(|folded| async move {
        let key = keys::segment(folded.segment);
        let read = get_fitting(store.as_ref(), &key, |bytes| match Segment::from_json_from(
            bytes,
            stream,
            folded.segment,
            least,
        ) {
            Ok(stored) if same(&stored, &folded) => Ok(()),
            Ok(_) => Err("differs from what the log folds to".to_owned()),
            Err(e) => Err(e.to_string()),
        });
        let read = found(read.await)?;
        Ok::<_, CliError>((folded.segment, key, read))
    });
    let mut reads = futures::stream::iter(reads).buffered(READS);
    let mut right = 0;
    while let Some((segment, key, read)) = reads.try_next().await? {
        match read {
            None => missing.push(segment),
            Some(Ok(())) => right += 1,
            Some(Err(why)) => {
                let why = format!("{why}; delete it: readers compute it from the log");
                problems.push(Problem::at("index", key, why));
            }
        }
    }
    Ok(right)
}

/// Compares two segments; those of older builds lack the record that filled them.
fn same(stored: &Segment, folded: &Segment) -> bool {
    let filled = stored.filled.is_none() || stored.filled == folded.filled;
    filled && stored.steps == folded.steps
}
