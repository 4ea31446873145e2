//! The root of a stream as people write it: a URL, or the path of a folder.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::Location;

/// Returns the URL of a root. A path that begins with `/`, `./` or `../` is a folder of this machine, which need not
/// exist; everything else is returned unchanged.
pub fn root_url(given: &str) -> Cow<'_, str> {
    let relative =
        matches!(given, "." | "..") || given.starts_with("./") || given.starts_with("../");
    if given.contains("://") || !(relative || given.starts_with('/')) {
        return Cow::Borrowed(given);
    }
    // Without a working folder the path stays relative, and opening it is refused.
    let here = if relative {
        std::env::current_dir().unwrap_or_default()
    } else {
        PathBuf::new()
    };
    Cow::Owned(Location::Folder(&plain(&here.join(given))).to_string())
}

/// Reads a root from a configuration, as [`root_url`] does.
pub fn deserialize_root<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let given = String::deserialize(from)?;
    Ok(root_url(&given).into_owned())
}

/// Resolves `.` and `..` by name, since the folders may not exist yet.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_urls_and_urls_stay() {
        let here = std::env::current_dir().unwrap();
        let above = here.parent().unwrap();
        let in_folder =
            |folder: &Path, name: &str| format!("file://{}", folder.join(name).display());
        for (given, url) in [
            ("/data/stream", "file:///data/stream".to_owned()),
            ("/data/x/../stream/", "file:///data/stream".to_owned()),
            ("./stream", in_folder(&here, "stream")),
            (".", format!("file://{}", here.display())),
            ("../a/./b", in_folder(above, "a/b")),
            ("s3://bucket/x", "s3://bucket/x".to_owned()),
            ("file:///data/x", "file:///data/x".to_owned()),
            ("memory://x", "memory://x".to_owned()),
            // Without a sign that it is a path: opening it is refused, with a remedy.
            ("stream", "stream".to_owned()),
            ("~/stream", "~/stream".to_owned()),
            ("", String::new()),
        ] {
            assert_eq!(root_url(given), url, "{given}");
        }
    }
}
