//! Finds the objects of a store at or below an `s3://bucket/prefix`, or those that match a pattern.

use std::collections::BTreeSet;

use batchweave_store::{ObjectMeta, list_all};
use futures::stream::{StreamExt, TryStreamExt};
use glob::MatchOptions;

use super::super::growing::FileFilter;
use super::super::left_out::{Cause, LeftOut, SpelledOut};
use super::super::open_store::{FINGERPRINTS_AT_ONCE, OpenStore};
use super::super::{InputList, SourceError};
use super::pin::pin_remote;

/// Finds the objects that `url` names.
pub(super) async fn remote(
    url: &str,
    open: &OpenStore,
    filter: &FileFilter,
) -> Result<InputList, SourceError> {
    let (root, pattern) = split_url(url)?;
    let store = open(root.clone()).await.map_err(SourceError::Store)?;
    let (mut listing, mut all) = (Listing::default(), BTreeSet::new());
    let listed = list_all(store.as_ref(), "", |object| {
        if filter.settled.is_some() {
            all.insert(object.key.clone());
        }
        // The marker of a folder, which consoles create.
        if object.size > 0 || !object.key.ends_with('/') {
            listing.add(pattern.of(&object.key), &root, object);
        }
    });
    listed.await.map_err(SourceError::Store)?;
    let mut listing = listing.with_literal();
    let before = listing.keys.len();
    (listing.keys).retain(|o| filter.accepts_object(&o.key, &format!("{root}/{}", o.key), &all));
    filter.check_some(url, before == 0, &listing.left_out)?;
    (listing.keys).sort_by(|a, b| a.key.cmp(&b.key));
    let files = futures::stream::iter(listing.keys)
        .map(|object| pin_remote(store.clone(), root.clone(), object))
        .buffered(FINGERPRINTS_AT_ONCE);
    let files = files.try_collect().await?;
    let mut all = LeftOut::default();
    listing.left_out.sort_unstable();
    all.add(url, Cause::Name, listing.left_out);
    all.add(url, Cause::Below, listing.below);
    Ok(InputList {
        files,
        left_out: all,
    })
}

/// The objects that a path names, and the names of those beside them.
#[derive(Default)]
struct Listing {
    keys: Vec<ObjectMeta>,
    literal: Vec<ObjectMeta>,
    left_out: Vec<String>,
    below: Vec<String>,
}

impl Listing {
    /// Adds an object of the store at `root`, which the path has this relation to.
    fn add(&mut self, verdict: Verdict, root: &str, object: ObjectMeta) {
        let name = || format!("{root}/{}", object.key);
        match verdict {
            Verdict::Other => {}
            Verdict::LeftOut => self.left_out.push(name()),
            Verdict::Below => self.below.push(name()),
            Verdict::Literal => self.literal.push(object),
            Verdict::Taken => self.keys.push(object),
        }
    }

    /// Returns only the objects that the path names literally, if there are any: a name that looks like a pattern is a
    /// name, if it is one.
    fn with_literal(self) -> Self {
        if self.literal.is_empty() {
            return self;
        }
        Self {
            keys: self.literal,
            ..Self::default()
        }
    }
}

/// The relation of a path to a key.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It does not name the key.
    Other,
    Taken,
    /// The path is the key, or a folder above it, although it looks like a pattern.
    Literal,
    /// The key has a name that folders and patterns leave out.
    LeftOut,
    /// The key is below what the path matches.
    Below,
}

/// The keys below the listed folder that a path names.
#[derive(Debug)]
enum KeyPattern {
    Below,
    Named(String),
    Matching {
        literal: String,
        pattern: glob::Pattern,
        /// All keys below what the pattern matches.
        folder: bool,
        spelled: SpelledOut,
    },
}

impl KeyPattern {
    fn of(&self, key: &str) -> Verdict {
        let none = SpelledOut::default();
        let unless = |out: bool, verdict| if out { Verdict::LeftOut } else { verdict };
        match self {
            Self::Below => unless(none.leaves_out(key), Verdict::Taken),
            Self::Named(name) => match under(key, name) {
                None => Verdict::Other,
                Some("") => Verdict::Taken,
                Some(rest) => unless(none.leaves_out(rest), Verdict::Taken),
            },
            Self::Matching {
                literal,
                pattern,
                folder,
                spelled,
            } => {
                if let Some(rest) = under(key, literal) {
                    return unless(!rest.is_empty() && none.leaves_out(rest), Verdict::Literal);
                }
                let whole = !folder && matches(pattern, key);
                let above = key.match_indices('/').map(|(at, _)| &key[..at]);
                let above = || above.clone().find(|above| matches(pattern, above));
                match (whole, above()) {
                    (true, _) => unless(spelled.leaves_out(key), Verdict::Taken),
                    (false, None) => Verdict::Other,
                    (false, Some(_)) if !folder => Verdict::Below,
                    (false, Some(above)) => {
                        let rest = &key[above.len() + 1..];
                        let out =
                            spelled.leaves_out(&format!("{above}/x")) || none.leaves_out(rest);
                        unless(out, Verdict::Taken)
                    }
                }
            }
        }
    }
}

/// Returns what follows `name` in `key`: nothing, or what is below the folder.
fn under<'k>(key: &'k str, name: &str) -> Option<&'k str> {
    let rest = key.strip_prefix(name)?;
    if rest.is_empty() {
        return Some(rest);
    }
    rest.strip_prefix('/').filter(|rest| !rest.is_empty())
}

fn matches(pattern: &glob::Pattern, key: &str) -> bool {
    let options = MatchOptions {
        require_literal_separator: true,
        ..MatchOptions::default()
    };
    pattern.matches_with(key, options)
}

/// Splits a URL into the folder to list and the keys to accept in it.
fn split_url(url: &str) -> Result<(String, KeyPattern), SourceError> {
    let wild = url.find(['*', '?', '[']).unwrap_or(url.len());
    if let Some(folder) = url.strip_suffix('/').filter(|_| wild == url.len()) {
        return Ok((folder.to_owned(), KeyPattern::Below));
    }
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let Some(bucket_end) = url[after_scheme..].find('/').map(|at| at + after_scheme) else {
        return Ok((url.to_owned(), KeyPattern::Below));
    };
    let folder_end = url[..wild].rfind('/').unwrap_or(bucket_end).max(bucket_end);
    let rest = url[folder_end + 1..].to_owned();
    let pattern = if wild == url.len() {
        KeyPattern::Named(rest)
    } else {
        let folder = rest.strip_suffix('/');
        let text = folder.unwrap_or(&rest);
        let pattern = glob::Pattern::new(text).map_err(|e| SourceError::Pattern {
            path: url.to_owned(),
            detail: e.to_string(),
        })?;
        KeyPattern::Matching {
            pattern,
            spelled: SpelledOut::of_pattern(text),
            folder: folder.is_some(),
            literal: text.to_owned(),
        }
    };
    Ok((url[..folder_end].to_owned(), pattern))
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Below, LeftOut, Literal, Other, Taken};
    use super::*;

    #[test]
    fn keys_of_paths() {
        for (url, key, verdict) in [
            ("s3://b", "a b+c%.jsonl", Taken),
            ("s3://b/", "/x//y.jsonl", Taken),
            ("s3://b/d/", "_SUCCESS", LeftOut),
            ("s3://b/a b.jsonl", "a b.jsonl", Taken),
            ("s3://b/_x.jsonl", "_x.jsonl", Taken),
            ("s3://b/_x", "_x/a", Taken),
            ("s3://b/_x", "_x/.a", LeftOut),
            ("s3://b/d", "d2/a", Other),
            ("s3://b/d", "d/", Other),
            ("s3://b/*.jsonl", "a b.jsonl", Taken),
            ("s3://b/*.jsonl", "_a.jsonl", LeftOut),
            ("s3://b/_*.jsonl", "_a.jsonl", Taken),
            ("s3://b/*.jsonl", "d/a.jsonl", Other),
            ("s3://b/a[1].jsonl", "a[1].jsonl", Literal),
            ("s3://b/a[1].jsonl", "a1.jsonl", Taken),
            ("s3://b/a?", "a?/x", Literal),
            ("s3://b/dt=*", "dt=1/a.jsonl", Below),
            ("s3://b/dt=*/", "dt=1/a.jsonl", Taken),
            ("s3://b/dt=*/", "dt=1/_SUCCESS", LeftOut),
            ("s3://b/dt=*/", "dt=1", Other),
            ("s3://b/*/", "_temporary/a", LeftOut),
            ("s3://b/dt=*/**", "dt=1/x/a.jsonl", Taken),
            ("s3://b/**/README.md", "d/README.md", Taken),
        ] {
            assert_eq!(split_url(url).unwrap().1.of(key), verdict, "{url} {key}");
        }
        for (url, root) in [
            ("s3://b/d//", "s3://b/d/"),
            ("s3://b//d/x", "s3://b//d"),
            ("s3://b/x y/*", "s3://b/x y"),
            ("s3://b/*", "s3://b"),
        ] {
            assert_eq!(split_url(url).unwrap().0, root);
        }
    }
}
