//! Comparison of bundles with the records of the log that they copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context;
use batchweave_core::ids::{Hash, StreamId, Version};
use batchweave_core::keys;
use batchweave_core::limits::BUNDLE_RECORDS;
use batchweave_core::manifest::Bundle;
use batchweave_log::get_intact;
use batchweave_store::{Store, found};

use crate::Problem;

/// The hashes of records in the log, for bundles that overlap; `None` where there is none.
type Records = BTreeMap<Version, Option<Hash>>;

/// Compares every stored bundle with the log, byte for byte; returns how many are right.
pub(crate) async fn check(
    store: &Arc<dyn Store>,
    stream: StreamId,
    problems: &mut Vec<Problem>,
) -> Result<u64, CliError> {
    let listed = context::list(store.as_ref(), keys::BUNDLES).await?;
    let mut versions: Vec<_> = listed
        .iter()
        .filter_map(|o| keys::bundle_version(&o.key))
        .collect();
    versions.sort_unstable();
    let (mut right, mut records) = (0, Records::new());
    for last in versions {
        let key = keys::bundle(last);
        let Some(bytes) = found(get_intact(store.as_ref(), &key).await)? else {
            // Deleted since the listing: there are newer ones.
            continue;
        };
        let why = match Bundle::from_json(&bytes, stream, last) {
            Ok(bundle) => differs(store, &bundle, &mut records).await?,
            Err(why) => Some(why.to_string()),
        };
        match why {
            None => right += 1,
            Some(why) => {
                let why = format!("{why}; delete it: readers take the records of the log");
                problems.push(Problem::at("bundle", key, why));
            }
        }
        records = records.split_off(&last.saturating_sub(BUNDLE_RECORDS));
    }
    Ok(right)
}

/// Returns how a bundle differs from the log.
async fn differs(
    store: &Arc<dyn Store>,
    bundle: &Bundle,
    records: &mut Records,
) -> Result<Option<String>, CliError> {
    for (version, record) in (bundle.first..).zip(&bundle.records) {
        let logged = if let Some(logged) = records.get(&version) {
            *logged
        } else {
            let bytes = found(get_intact(store.as_ref(), &keys::log(version)).await)?;
            let hash = bytes.map(|bytes| Hash::sha256(&bytes));
            records.insert(version, hash);
            hash
        };
        match logged {
            None => {
                return Ok(Some(format!(
                    "has a record of version {version}, which the log does not have"
                )));
            }
            Some(hash) if hash != Hash::sha256(record.as_bytes()) => {
                return Ok(Some(format!(
                    "has another record of version {version} than the log"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(None)
}
