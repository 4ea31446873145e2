//! Listing a folder tree in key order, page by page, with no more in memory than a page and the
//! entries of one folder per level.

use std::fs;
use std::io;
use std::path::Path;

use super::{HIDDEN, inside};
use crate::{ListPage, ObjectMeta};

const PAGE_KEYS: usize = 1000;

/// Returns one page of the objects below `prefix`, after the key `after`.
pub(super) fn page(root: &Path, prefix: &str, after: Option<&str>) -> io::Result<ListPage> {
    fs::metadata(root)?;
    // The prefix up to its last slash is a folder.
    let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
    if !inside::is_folder(root, Path::new(folder))? {
        return Ok(ListPage::default());
    }
    let after: Vec<&str> = after
        .and_then(|key| key.strip_prefix(prefix))
        .map(|rest| rest.split('/').collect())
        .unwrap_or_default();
    let mut objects = Vec::new();
    let full = walk(&root.join(prefix), prefix, &after, &mut objects)?;
    let next = if full {
        objects.last().map(|last: &ObjectMeta| last.key.clone())
    } else {
        None
    };
    Ok(ListPage { objects, next })
}

/// Appends objects in order of their segments; returns true when the page is full and more remain.
fn walk(
    folder: &Path,
    prefix: &str,
    after: &[&str],
    objects: &mut Vec<ObjectMeta>,
) -> io::Result<bool> {
    for name in names(folder, prefix.is_empty())? {
        let within = match after.first() {
            Some(first) if name.as_str() < *first => continue,
            Some(first) if name == *first => &after[1..],
            _ => &[],
        };
        let passed = after.len() == 1 && after[0] == name;
        let path = folder.join(&name);
        let meta = match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            meta => meta?,
        };
        let key = format!("{prefix}{name}");
        if meta.is_dir() {
            if walk(&path, &format!("{key}/"), within, objects)? {
                return Ok(true);
            }
        } else if meta.is_file() && !passed {
            if objects.len() == PAGE_KEYS {
                return Ok(true);
            }
            objects.push(ObjectMeta {
                modified: meta.modified().ok(),
                ..ObjectMeta::new(key, meta.len())
            });
        }
    }
    Ok(false)
}

/// Returns the sorted names in a folder that can be part of a key; none if the folder is absent.
fn names(folder: &Path, top: bool) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = entry?.file_name().into_string()
            && crate::key::fault_of(&name).is_none()
            && !(top && name == HIDDEN)
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}
