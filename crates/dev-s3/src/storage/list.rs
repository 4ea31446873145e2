//! One page of a listing, in the order of the keys or deliberately not.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use super::Object;

/// The order of keys in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// By name, as S3 does.
    Sorted,
    /// By a hash of name and seed, as S3 Express does: stable, but useless for a reader.
    Shuffled(u64),
}

/// The parameters of a listing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query<'a> {
    pub prefix: &'a str,
    pub delimiter: &'a str,
    /// The last entry of the previous page, a key or a common prefix.
    pub after: Option<&'a str>,
    pub limit: usize,
}

/// A page; `next` is the entry after which the next page begins.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub objects: Vec<(String, Arc<Object>)>,
    pub prefixes: Vec<String>,
    pub next: Option<String>,
}

impl Page {
    fn len(&self) -> usize {
        self.objects.len() + self.prefixes.len()
    }
}

impl Query<'_> {
    /// Returns the common prefix that represents `key` in the listing.
    fn common_prefix<'k>(&self, key: &'k str) -> Option<&'k str> {
        if self.delimiter.is_empty() {
            return None;
        }
        let at = key.get(self.prefix.len()..)?.find(self.delimiter)?;
        key.get(..self.prefix.len() + at + self.delimiter.len())
    }
}

pub(crate) fn page(
    objects: &BTreeMap<String, Arc<Object>>,
    query: &Query<'_>,
    order: Order,
) -> Page {
    if query.limit == 0 {
        return Page::default();
    }
    match order {
        Order::Sorted => sorted(objects, query),
        Order::Shuffled(seed) => shuffled(objects, query, seed),
    }
}

fn sorted(objects: &BTreeMap<String, Arc<Object>>, query: &Query<'_>) -> Page {
    let mut page = Page::default();
    let mut last = None;
    let start = match query.after {
        Some(after) if after >= query.prefix => Bound::Excluded(after),
        _ => Bound::Included(query.prefix),
    };
    for (key, object) in objects.range::<str, _>((start, Bound::Unbounded)) {
        if !key.starts_with(query.prefix) {
            break;
        }
        let group = query.common_prefix(key);
        // The previous page ended with this group, or this page has it already.
        if group.is_some()
            && (group == query.after || group == page.prefixes.last().map(String::as_str))
        {
            continue;
        }
        if page.len() == query.limit {
            page.next = last;
            break;
        }
        match group {
            Some(group) => page.prefixes.push(group.to_owned()),
            None => page.objects.push((key.clone(), Arc::clone(object))),
        }
        last = Some(group.unwrap_or(key).to_owned());
    }
    page
}

fn shuffled(objects: &BTreeMap<String, Arc<Object>>, query: &Query<'_>, seed: u64) -> Page {
    let rank = |name: &str| {
        let mut hasher = DefaultHasher::new();
        (seed, name).hash(&mut hasher);
        hasher.finish()
    };
    let mut entries = BTreeMap::new();
    for (key, object) in objects.range::<str, _>((Bound::Included(query.prefix), Bound::Unbounded))
    {
        if !key.starts_with(query.prefix) {
            break;
        }
        let group = query.common_prefix(key);
        let name = group.unwrap_or(key);
        entries.insert((rank(name), name), group.is_none().then_some(object));
    }
    let start = query.after.map_or(Bound::Unbounded, |after| {
        Bound::Excluded((rank(after), after))
    });
    let mut page = Page::default();
    let mut last = None;
    for ((_, name), object) in entries.range((start, Bound::Unbounded)) {
        if page.len() == query.limit {
            page.next = last;
            break;
        }
        match object {
            Some(object) => page.objects.push(((*name).to_owned(), Arc::clone(object))),
            None => page.prefixes.push((*name).to_owned()),
        }
        last = Some((*name).to_owned());
    }
    page
}
