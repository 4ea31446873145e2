//! Comparison of bundles with the records of the log that they copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context;
use batchweave_core::ids::{Hash, StreamId, Version};
use batchweave_core::keys;
use batchweave_core::limits::BUNDLE_RECORDS;
use batchweave_core::manifest::Bundle;
use batchweave_log::get_fitting;
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
        let read = get_fitting(store.as_ref(), &key, |bytes| {
            Bundle::from_json(bytes, stream, last)
        });
        let Some(bundle) = found(read.await)? else {
            // Deleted since the listing: there are newer ones.
            continue;
        };
        let why = match bundle {
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

/// Returns the hash of a record in the log, which is read again when it is not the one that the bundle has.
async fn logged_hash(
    store: &dyn Store,
    version: Version,
    expected: &str,
) -> Result<Option<Hash>, CliError> {
    let expected = Hash::sha256(expected.as_bytes());
    let key = keys::log(version);
    let read = get_fitting(store, &key, |bytes| {
        let hash = Hash::sha256(bytes);
        if hash == expected {
            Ok(hash)
        } else {
            Err(hash)
        }
    });
    let hash = found(read.await)?;
    Ok(hash.map(|hash| hash.unwrap_or_else(|other| other)))
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
            let hash = logged_hash(store.as_ref(), version, record).await?;
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
