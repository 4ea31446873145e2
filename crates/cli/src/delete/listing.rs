//! The objects below a root, by class: those that BatchWeave writes, and others.

use std::collections::BTreeMap;

use batchweave_core::keys::class_of;
use batchweave_store::{Store, StoreError, list_all};
use serde::Serialize;

/// Most keys of others that are named.
const FOREIGN_NAMED: usize = 20;

/// Objects and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Tally {
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

/// The objects below a root.
#[derive(Debug, Default, Serialize)]
pub(super) struct Listing {
    pub(super) classes: BTreeMap<&'static str, Tally>,
    pub(super) total: Tally,
    /// Objects that BatchWeave did not write, which stay.
    pub(super) foreign: Tally,
    /// The keys of the first of them.
    pub(super) foreign_keys: Vec<String>,
    #[serde(skip)]
    example: Option<String>,
}

impl Listing {
    /// Returns a key that BatchWeave writes; checks of the store leave objects without a stream.
    pub(super) fn example(&self) -> Option<&str> {
        self.example.as_deref()
    }
}

/// Lists everything below the root.
pub(super) async fn list(store: &dyn Store) -> Result<Listing, StoreError> {
    let mut listing = Listing::default();
    list_all(store, "", |object| {
        let Some(class) = class_of(&object.key) else {
            listing.foreign.add(object.size);
            if listing.foreign_keys.len() < FOREIGN_NAMED {
                listing.foreign_keys.push(object.key);
            }
            return;
        };
        listing.classes.entry(class).or_default().add(object.size);
        listing.total.add(object.size);
        if class != "probe" && listing.example.is_none() {
            listing.example = Some(object.key);
        }
    })
    .await?;
    listing.foreign_keys.sort();
    Ok(listing)
}
