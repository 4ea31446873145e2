//! Listing all pages of a prefix. Only one page is in memory at a time.

use crate::{ObjectMeta, Store, StoreError};

/// The pages of one prefix, read one after another.
#[derive(Debug)]
pub struct Pages<'a> {
    store: &'a dyn Store,
    prefix: &'a str,
    next: Option<String>,
    ended: bool,
}

impl<'a> Pages<'a> {
    /// Returns the pages of `prefix`, from the first.
    pub fn new(store: &'a dyn Store, prefix: &'a str) -> Self {
        Self {
            store,
            prefix,
            next: None,
            ended: false,
        }
    }

    /// Lists one more page; `None` after the last. After an error the same page is listed again.
    pub async fn next(&mut self) -> Result<Option<Vec<ObjectMeta>>, StoreError> {
        if self.ended {
            return Ok(None);
        }
        let page = self.store.list(self.prefix, self.next.clone()).await?;
        self.ended = page.next.is_none();
        self.next = page.next;
        Ok(Some(page.objects))
    }
}

/// Calls `visit` with each object below `prefix`, in no promised order.
pub async fn list_all(
    store: &dyn Store,
    prefix: &str,
    mut visit: impl FnMut(ObjectMeta),
) -> Result<(), StoreError> {
    let mut pages = Pages::new(store, prefix);
    while let Some(objects) = pages.next().await? {
        objects.into_iter().for_each(&mut visit);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn every_object_of_every_page_is_visited_once() {
        let store = MemoryStore::new();
        for n in 0..2500 {
            store.overwrite(&format!("a/{n:05}"), Bytes::new());
        }
        store.overwrite("b/other", Bytes::new());
        let mut keys = Vec::new();
        list_all(store.as_ref(), "a/", |object| keys.push(object.key))
            .await
            .unwrap();
        assert!(
            keys.iter()
                .cloned()
                .eq((0..2500).map(|n| format!("a/{n:05}")))
        );
        let mut pages = Pages::new(store.as_ref(), "c/");
        assert_eq!(pages.next().await.unwrap(), Some(Vec::new()));
        assert_eq!(pages.next().await.unwrap(), None);
    }
}
