//! A full disk: starting the producer again would fail in the same way.

use batchweave_console::output::bytes;
use batchweave_daemon::config::ByteSize;
use batchweave_daemon::disk::free_space;
use serde_json::{Map, Value};

/// The default of `packing.object_bytes`.
const OBJECT: u64 = 16 << 20;

/// The local store of a run in which nothing is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    url: String,
    /// Most bytes of one object.
    object: u64,
}

impl Disk {
    /// Returns the store at `url`; `None` where reclamation may free space while the producer is started again.
    pub(super) fn new(
        url: &str,
        packing: &Map<String, Value>,
        reclaim: &Map<String, Value>,
    ) -> Option<Self> {
        if reclaim.get("enabled") == Some(&Value::Bool(true)) {
            return None;
        }
        let object: Option<ByteSize> = packing
            .get("object_bytes")
            .and_then(Value::as_str)
            .and_then(|text| text.parse().ok());
        Some(Self {
            url: url.to_owned(),
            object: object.map_or(OBJECT, ByteSize::bytes),
        })
    }

    /// Returns the words about a file system without room for an object.
    pub(super) fn full(&self) -> Option<String> {
        let free = free_space(&self.url)?;
        (free.bytes < self.object).then(|| {
            format!(
                "the disk is full: {} has {} free, and an object of batches takes up to {}; free some space, or let the \
                 consumer delete what is trained (reclaim.enabled = true), and run the same command again: it continues",
                free.folder.display(),
                bytes(free.bytes),
                bytes(self.object)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_disk_without_room_for_an_object_is_full() {
        let table = |value: Value| value.as_object().unwrap().clone();
        let disk = |url, size| {
            Disk::new(
                url,
                &table(json!({"object_bytes": size})),
                &table(json!({})),
            )
        };
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}", folder.path().display());
        assert_eq!(disk(&url, "1B").unwrap().full(), None);
        let full = disk(&url, "9999TiB").unwrap().full().unwrap();
        assert!(
            full.contains("free, and an object of batches takes up to 9.8 PiB"),
            "{full}"
        );
        assert_eq!(disk("s3://bucket/x", "9999TiB").unwrap().full(), None);
        let reclaims = table(json!({"enabled": true}));
        assert_eq!(Disk::new(&url, &table(json!({})), &reclaims), None);
    }
}
