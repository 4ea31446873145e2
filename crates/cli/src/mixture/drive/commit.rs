//! The commit of a decision: an ordinary `mixture` entry with its reason, if nothing came in between.

use std::collections::BTreeMap;

use batchweave_console::CliError;
use batchweave_core::drive::{Decision, Why};
use batchweave_core::ids::RequestId;
use batchweave_core::limits::ENTRY_BYTES_MAX;
use batchweave_core::manifest::entry::Mixture;
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_core::order::{MixtureSpec, named_weights};
use batchweave_log::Log;

use super::super::begin::Begin;
use super::super::change::{Wanted, needed_mixtures};
use super::super::{entry, is_done};
use super::settings::Driver;
use super::{Driven, DrivenSource};
use crate::admin;

/// Commits the decision; `None` where another mixture or attempt came first, so that it is void.
pub(super) async fn commit(
    driver: &Driver,
    decision: &Decision,
    log: &mut Log,
) -> Result<Option<Driven>, CliError> {
    let why = &decision.why;
    let shares = why.sources.iter().map(|one| (one.name.clone(), one.share));
    let weights = named_weights(&shares.collect());
    let wanted = Wanted {
        weights: weights.map_err(|why| CliError::Refused(why.to_string()))?,
        begin: Begin::After(driver.after),
        producers: Vec::new(),
    };
    let request = admin::request(None, log);
    let version = admin::commit(log, "mixture-drive", |m| {
        if is_done(m, request) || !decision.is_valid(m) {
            return Ok(None);
        }
        made(&wanted, why, request, m).map(Some)
    })
    .await?;
    Ok(version.map(|version| Driven {
        id: decision.mixture + 1,
        version,
        change: why.change,
        from: why.from,
        to: why.to,
        sources: driven(why),
    }))
}

fn made(wanted: &Wanted, why: &Why, request: RequestId, m: &Manifest) -> Result<Entry, CliError> {
    let change = wanted.change(m)?;
    let plain = entry(wanted, &change, request, m)?;
    let made = Mixture {
        why: Some(why.to_json()),
        ..plain
    };
    Ok(Entry::Mixture(fitting(made, needed_mixtures(m))))
}

/// Leaves out the oldest mixtures that no producer needs until the entry fits into a record.
fn fitting(mut made: Mixture, needed: u64) -> Mixture {
    while Entry::Mixture(made.clone()).json_len() > ENTRY_BYTES_MAX {
        let Ok(mut spec) = MixtureSpec::read(&made.spec) else {
            break;
        };
        if spec.mixtures.len() < 2 || spec.mixtures[0].id >= needed {
            break;
        }
        spec.mixtures.remove(0);
        made.spec = spec.to_json();
    }
    made
}

fn driven(why: &Why) -> Vec<DrivenSource> {
    let source = |one: &batchweave_core::drive::SourceWhy| DrivenSource {
        source: one.name.clone(),
        loss: one.sums().loss(),
        before: one.before,
        after: one.share,
    };
    why.sources.iter().map(source).collect()
}

/// Returns shares by source, for tests and plots.
pub(super) fn by_name(why: &Why) -> BTreeMap<String, f64> {
    let shares = why.sources.iter().map(|one| (one.name.clone(), one.share));
    shares.collect()
}
