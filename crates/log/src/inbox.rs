//! The folder of an inbox's writer, as an object store lists it.

use batchweave_core::inbox::{Listed, Read, is_past, look_after};
use batchweave_store::{Store, StoreError};

/// The first part of a fingerprint that is an `ETag`.
pub const ETAG: &str = "etag ";

/// Returns the fingerprint of an object with this `ETag`.
pub fn etag_fingerprint(etag: &str) -> String {
    format!("{ETAG}{}", etag.trim_matches('"'))
}

/// Lists the objects of `writer` from the newest file of `read` on, below the root of `store`, which is the inbox.
pub async fn list_writer(
    store: &dyn Store,
    writer: &str,
    read: &Read,
) -> Result<Vec<Listed>, StoreError> {
    let prefix = format!("{writer}/");
    let mut after = format!("{prefix}{}", look_after(read));
    let mut listed = Vec::new();
    loop {
        let page = store.list_after(&prefix, &after).await?;
        for object in page.objects {
            let name = object.key.strip_prefix(&prefix).unwrap_or_default();
            if is_past(name) {
                return Ok(listed);
            }
            listed.push(Listed {
                name: name.to_owned(),
                size: object.size,
                fingerprint: object.etag.as_deref().map(etag_fingerprint),
            });
        }
        match page.next {
            Some(next) => after = next,
            None => return Ok(listed),
        }
    }
}
