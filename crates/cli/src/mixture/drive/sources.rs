//! The sources of all producers, by their numbers in reports, with their shares by the weights in force.

use std::collections::BTreeMap;

use batchweave_console::CliError;
use batchweave_console::sources::{numbered, weighted};
use batchweave_core::drive::KnownSource;
use batchweave_core::manifest::Manifest;

use super::super::change::{read_spec, shares, weights};

/// Returns the sources with their shares by mixture `id`; where producers differ, the mean of theirs.
pub(in crate::mixture) fn known(m: &Manifest, id: u64) -> Result<Vec<KnownSource>, CliError> {
    let spec = read_spec(m)?;
    let mut by_name: BTreeMap<String, f64> = BTreeMap::new();
    for (_, state) in m.producers() {
        let own = weighted(state);
        // A mixture that is forgotten, or gives nothing to this producer, leaves it with its configuration.
        let found = weights(&spec, id, &own).or_else(|_| weights(&spec, 0, &own));
        let found = shares(&found.unwrap_or_default());
        for ((name, _), share) in own.iter().zip(found) {
            *by_name.entry(name.clone()).or_default() += share;
        }
    }
    let all: f64 = by_name.values().sum();
    let mut known = Vec::new();
    for (number, name) in numbered(m) {
        let Some(name) = name else {
            return Err(CliError::Refused(format!(
                "producers have different sources with number {number}, so losses of it cannot be told apart; give all the \
                 same [[sources]]"
            )));
        };
        let share = by_name.get(&name).copied().unwrap_or_default() / all;
        known.push(KnownSource {
            number,
            name,
            share,
        });
    }
    if known.is_empty() {
        return Err(CliError::Refused(
            "no producer of this stream has several sources with a committed batch; a driver needs [[sources]]"
                .to_owned(),
        ));
    }
    Ok(known)
}
