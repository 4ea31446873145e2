//! Checks of listings in order, and of folders.

use super::tools::ok;
use crate::Store;

/// Checks the folders below `prefix` and, of a store that lists in order, the keys behind each tenth of `keys`, which are
/// all there are, sorted.
pub(super) async fn check(store: &dyn Store, prefix: &str, keys: &[String]) {
    let mut folders: Vec<&str> = keys
        .iter()
        .filter_map(|key| Some(key.strip_prefix(prefix)?.split_once('/')?.0))
        .collect();
    folders.sort_unstable();
    folders.dedup();
    assert!(!folders.is_empty());
    let listed = ok("folders", prefix, store.folders(prefix).await);
    assert_eq!(listed, folders, "folders below {prefix}");
    if let Err(why) = store.list_after(prefix, "").await {
        println!("    no listing in order: {why}");
        return;
    }
    for from in (0..=keys.len()).step_by(keys.len() / 10) {
        let mut after = match from {
            0 => prefix.to_owned(),
            from => keys[from - 1].clone(),
        };
        let mut behind = Vec::new();
        loop {
            let page = ok("list_after", &after, store.list_after(prefix, &after).await);
            behind.extend(page.objects.into_iter().map(|object| object.key));
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(behind, keys[from..], "keys behind {after}");
    }
}
