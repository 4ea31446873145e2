//! Listings of a cloud's bucket, below the store's prefix.

use super::{CloudStore, Listed, Listing, Page};
use crate::key::{self, Keys};
use crate::{ErrorKind, ListPage, ObjectMeta, Op, StoreError};

/// Lists one page of the objects whose keys begin with `prefix`.
pub(super) async fn page(
    store: &CloudStore,
    prefix: &str,
    page: Option<String>,
) -> Result<ListPage, StoreError> {
    let full = store.full(prefix);
    let answer = send(store, prefix, &listing(&full, page.as_deref())).await?;
    if answer.next.is_some() && answer.next == page {
        let why = "endless listing: a page names itself as the next";
        return Err(store.broken(Op::List, prefix, why));
    }
    let objects = answer.objects.into_iter();
    Ok(ListPage {
        objects: objects
            .filter_map(|object| described(store, object))
            .collect(),
        next: answer.next,
    })
}

/// Lists the objects below `prefix` whose keys are greater than `after`, in order. Where the cloud can't begin there, all
/// of the prefix is read.
pub(super) async fn page_after(
    store: &CloudStore,
    prefix: &str,
    after: &str,
) -> Result<ListPage, StoreError> {
    let (full, from) = (store.full(prefix), store.full(after));
    let can_begin = store.0.dialect.lists_from();
    let (mut objects, mut next) = (Vec::new(), None);
    loop {
        let request = Listing {
            from: can_begin.then_some(&from),
            ..listing(&full, next.as_deref())
        };
        let answer = send(store, prefix, &request).await?;
        let listed = answer.objects.into_iter();
        let ours = listed.filter_map(|object| described(store, object));
        objects.extend(ours.filter(|object| object.key.as_str() > after));
        if answer.next.is_some() && answer.next == next {
            let why = "endless listing: a page names itself as the next";
            return Err(store.broken(Op::List, prefix, why));
        }
        next = answer.next;
        // A page that holds only `after` itself says nothing of what follows.
        if next.is_none() || (can_begin && !objects.is_empty()) {
            break;
        }
    }
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    let last = objects.last().filter(|_| next.is_some());
    let next = last.map(|last| last.key.clone());
    Ok(ListPage { objects, next })
}

/// Returns the names of the folders directly below `prefix`, sorted.
pub(super) async fn folders(store: &CloudStore, prefix: &str) -> Result<Vec<String>, StoreError> {
    let full = store.full(prefix);
    let (mut names, mut page) = (Vec::new(), None);
    loop {
        let request = Listing {
            folders: true,
            ..listing(&full, page.as_deref())
        };
        let answer = send(store, prefix, &request).await?;
        names.extend(answer.folders.iter().filter_map(|folder| {
            let name = folder.strip_prefix(&full)?.strip_suffix('/')?;
            key::fault_of(name).is_none().then(|| name.to_owned())
        }));
        if answer.next.is_some() && answer.next == page {
            let why = "endless listing: a page names itself as the next";
            return Err(store.broken(Op::List, prefix, why));
        }
        page = answer.next;
        if page.is_none() {
            names.sort_unstable();
            names.dedup();
            return Ok(names);
        }
    }
}

fn listing<'a>(prefix: &'a str, page: Option<&'a str>) -> Listing<'a> {
    Listing {
        prefix,
        page,
        from: None,
        folders: false,
    }
}

async fn send(store: &CloudStore, prefix: &str, listing: &Listing<'_>) -> Result<Page, StoreError> {
    let request = || store.0.dialect.list(listing);
    let answer = store.answered(Op::List, prefix, request).await?;
    let page = store.0.dialect.page(&answer.body);
    page.map_err(|why| {
        let detail = format!("cannot read the listing: {why}");
        let effect = crate::Effect::DidNot;
        store.error(Op::List, prefix, ErrorKind::Contract, effect, detail)
    })
}

/// Returns an object as the store's users know it; `None` for one that the store can't have.
fn described(store: &CloudStore, listed: Listed) -> Option<ObjectMeta> {
    let key = listed.name.strip_prefix(store.prefix())?;
    let fault = match store.0.keys {
        Keys::Ours => key::fault_of(key),
        Keys::Foreign => key::foreign_fault(key),
    };
    fault.is_none().then(|| ObjectMeta {
        key: key.to_owned(),
        size: listed.size,
        etag: listed.etag,
        modified: listed.modified,
    })
}
