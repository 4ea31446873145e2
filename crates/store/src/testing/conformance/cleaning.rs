//! Bulk deletes and abandoned uploads.

use bytes::Bytes;

use super::tools::{all, ok};
use super::{Bench, LISTED};
use crate::Create;

impl Bench {
    /// Deletes more keys than fit one request, absent ones among them.
    pub(super) async fn bulk_deletes(self) {
        let keys: Vec<_> = (0..LISTED).map(|at| self.key(&format!("k{at}"))).collect();
        for key in keys.iter().step_by(50) {
            let created = self.store.create(key, Bytes::from_static(b"1")).await;
            assert_eq!(ok("create", key, created), Create::Created, "{key}");
        }
        let spared = self.put("spared", &Bytes::from_static(b"1")).await;
        let refused = ok("delete", "many", self.store.delete_many(&keys).await);
        assert!(refused.is_empty(), "refused: {refused:?}");
        let left = all(&*self.store, &format!("{}/", self.prefix)).await;
        assert_eq!(
            left,
            std::slice::from_ref(&spared),
            "left after a bulk delete"
        );
        let refused = ok("delete", "none", self.store.delete_many(&[]).await);
        assert!(refused.is_empty(), "deleting nothing");
        self.delete(&spared).await;
    }

    /// Where a store has multipart uploads, an aborted one is gone, and others stay.
    pub(super) async fn unfinished(self) {
        let prefix = format!("{}/", self.prefix);
        let begun = async |name: &str| {
            let bucket = self.store.inspect()?.bucket()?;
            let body = Bytes::from_static(b"a part");
            let begun = bucket.begin_upload(&self.key(name), body).await;
            Some(ok("begin", name, begun))
        };
        let (Some(one), Some(_)) = (begun("one.tgb").await, begun("other.tgb").await) else {
            let found = ok("uploads", &prefix, self.store.unfinished(&prefix).await);
            assert!(found.iter().all(|u| u.key.is_empty()), "{found:?}");
            return;
        };
        let keys = async || {
            let found = ok("uploads", &prefix, self.store.unfinished(&prefix).await);
            let mut keys: Vec<_> = found.into_iter().map(|upload| upload.key).collect();
            keys.sort();
            keys
        };
        let bucket = self.store.inspect().and_then(|inspect| inspect.bucket());
        if let Some(bucket) = bucket.filter(|bucket| !bucket.lists_uploads()) {
            assert!(keys().await.is_empty(), "the store lists uploads");
            ok("abort", &one.key, bucket.abort_upload(&one).await);
            return;
        }
        assert_eq!(
            keys().await,
            [self.key("one.tgb"), self.key("other.tgb")],
            "begun"
        );
        ok("abort", &one.key, self.store.abort(&one).await);
        ok("abort", &one.key, self.store.abort(&one).await);
        assert_eq!(keys().await, [self.key("other.tgb")], "one is given up");
        let found = ok("uploads", &prefix, self.store.unfinished(&prefix).await);
        for upload in found {
            ok("abort", &upload.key, self.store.abort(&upload).await);
        }
    }
}
