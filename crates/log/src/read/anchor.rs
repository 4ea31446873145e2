//! Compares records that bundles gave with the log itself.
//!
//! Invariant (checked in the model `bundles`): no bundle is taken whose last record the log does not hold byte for byte.
//! Through its hash of the record before, and so on, that one pins all others, so that the forger of a fork that joins
//! the log again would need a second SHA-256. A forger who also plants the last record beyond the log's end is believed
//! until the log gets there and stops; records drawn later find it sooner.

use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_store::{ErrorKind, Store, StoreError, found};
use bytes::Bytes;
use rand::RngExt;
use tracing::warn;

use crate::error::LogError;
use crate::log::{Log, Stopped};
use crate::read::refold::Refold;
use crate::read::self_check::AGAIN_AFTER;

/// The content of the log in place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instead {
    Nothing,
    AnotherRecord,
}

impl Instead {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Nothing => "is missing",
            Self::AnotherRecord => "is another record",
        }
    }
}

/// Returns what the log has in place of a record, if not that record, by two reads over two connections.
pub(crate) async fn compare(
    store: &dyn Store,
    version: Version,
    same: impl Fn(&Bytes) -> bool,
) -> Result<Option<Instead>, StoreError> {
    let key = keys::log(version);
    let at_most = keys::bytes_max(&key);
    let first = differs(store.get(&key, at_most).await, &same)?;
    if first.is_none() {
        return Ok(None);
    }
    differs(store.get_fresh(&key, at_most).await, &same)
}

fn differs(
    read: Result<Bytes, StoreError>,
    same: impl Fn(&Bytes) -> bool,
) -> Result<Option<Instead>, StoreError> {
    // Larger than any record: another one.
    if matches!(&read, Err(why) if why.kind == ErrorKind::TooLarge) {
        return Ok(Some(Instead::AnotherRecord));
    }
    Ok(match found(read)? {
        None => Some(Instead::Nothing),
        Some(bytes) if same(&bytes) => None,
        Some(_) => Some(Instead::AnotherRecord),
    })
}

impl Log {
    /// Compares one of the records that bundles gave with the log. Fails when the log does not hold it and a second fold
    /// does not replace this one.
    pub(crate) async fn compare_adopted(&mut self) -> Result<(), LogError> {
        let draw = self.rng.random();
        if let Some((version, hash)) = self.adopted.pick(draw) {
            let until = self.clock.now();
            self.contradicted = Some(Stopped {
                version,
                hash,
                until,
            });
        }
        self.recheck_adopted().await
    }

    /// Compares the record again that differed, if one did: it stays an error until the log holds it, or another fold
    /// replaced this one.
    pub(crate) async fn recheck_adopted(&mut self) -> Result<(), LogError> {
        let Some(Stopped {
            version,
            hash: held,
            until,
        }) = self.contradicted
        else {
            return Ok(());
        };
        let same = |bytes: &Bytes| Hash::sha256(bytes) == held;
        let Some(instead) = compare(self.store.as_ref(), version, same).await? else {
            self.contradicted = None;
            return Ok(());
        };
        let (key, found) = (keys::log(version), instead.text());
        if self.clock.now() >= until {
            warn!(
                key,
                found, "a record that a bundle gave is not in the log: folding the log again"
            );
            self.fold_without_bundles().await?;
        } else {
            Box::pin(self.check_repairs()).await?;
        }
        if self.contradicted.is_none() {
            return Ok(());
        }
        Err(LogError::NotInLog { key, found, held })
    }

    /// Replaces this fold by one of the log's records, if that reaches as far.
    async fn fold_without_bundles(&mut self) -> Result<(), LogError> {
        let to = self.manifest.next_version();
        if let Some(stopped) = &mut self.contradicted {
            stopped.until = self.clock.now() + AGAIN_AFTER;
        }
        match Box::pin(Refold::for_log(self).run(to)).await {
            Ok(again) if again.stopped.is_none() => self.adopt(again),
            // The log ends before this fold, or stops.
            Ok(_) | Err(LogError::Gap { .. }) => {}
            Err(why) => return Err(why),
        }
        Ok(())
    }
}
