//! From the path in a document to the path below the root. Pure.

/// The reason why a path names no file that may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathFault {
    Empty,
    Outside,
    NotAFile,
    Missing,
    Circle,
    NoKey,
}

impl PathFault {
    /// Returns the fault and its remedy for a message about a path below `root`.
    pub(super) fn explain(self, root: &str) -> String {
        match self {
            Self::Empty => {
                "can't be read: the path is empty; leave documents without a file out".to_owned()
            }
            Self::Outside => format!(
                "is a path outside the allowed root {root}; correct it, or name in source.root the folder that holds all files"
            ),
            Self::NotAFile => "is not a regular file; name a file".to_owned(),
            Self::Missing => format!(
                "does not exist below {root}; add it, or name in source.root the folder that paths start from"
            ),
            Self::Circle => "is a circle of links; name a file".to_owned(),
            Self::NoKey => format!(
                "can't be a key below {root}: a key has at most 1024 bytes; correct the path"
            ),
        }
    }
}

/// Returns `path` below the root, which has these names, without `.` and `..`. An absolute path or URL must begin with
/// one of the names. Nothing is decoded: `%2e%2e` and backslashes are names as they are.
pub(super) fn below(roots: &[&str], remote: bool, path: &str) -> Result<String, PathFault> {
    if path.is_empty() {
        return Err(PathFault::Empty);
    }
    // The system would read such a path up to there.
    if path.contains('\0') {
        return Err(PathFault::Missing);
    }
    let relative = if path.starts_with('/') || path.contains("://") {
        let within = |root: &&str| {
            let rest = path.strip_prefix(root.trim_end_matches('/'))?;
            rest.strip_prefix('/').or(rest.is_empty().then_some(rest))
        };
        roots.iter().find_map(within).ok_or(PathFault::Outside)?
    } else {
        path
    };
    let mut segments: Vec<&str> = Vec::new();
    for segment in relative.split('/') {
        match segment {
            "." => {}
            // A key may have an empty segment, and is then another one.
            "" if !remote => {}
            ".." => {
                segments.pop().ok_or(PathFault::Outside)?;
            }
            name => segments.push(name),
        }
    }
    let folder = ["", ".", ".."].contains(&relative.rsplit('/').next().unwrap_or(""));
    if segments.is_empty() || folder {
        return Err(PathFault::NotAFile);
    }
    Ok(segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::PathFault::{Empty, Missing, NotAFile, Outside};
    use super::*;

    #[test]
    fn paths_of_folders_stay_below_the_root() {
        let at = |path| below(&["data/set", "/srv/data/set"], false, path);
        for (path, expected) in [
            ("a.jpg", "a.jpg"),
            ("images/7.jpg", "images/7.jpg"),
            ("./images//7.jpg", "images/7.jpg"),
            ("a/../b.jpg", "b.jpg"),
            ("/srv/data/set/a.jpg", "a.jpg"),
            ("/srv/data/set/a/../b.jpg", "b.jpg"),
            ("%2e%2e/b.jpg", "%2e%2e/b.jpg"),
            ("..\\b.jpg", "..\\b.jpg"),
            ("...", "..."),
            ("data/set/a.jpg", "data/set/a.jpg"),
            ("ä b?#.jpg", "ä b?#.jpg"),
        ] {
            assert_eq!(at(path).as_deref(), Ok(expected), "{path}");
        }
        for (path, expected) in [
            ("", Empty),
            ("..", Outside),
            ("../b.jpg", Outside),
            ("a/../../b.jpg", Outside),
            ("a/../../set/b.jpg", Outside),
            ("/", Outside),
            ("/etc/passwd", Outside),
            ("/srv/data/set2/a.jpg", Outside),
            ("/srv/data/set/../b.jpg", Outside),
            ("/srv/data", Outside),
            ("s3://bucket/a.jpg", Outside),
            ("file:///srv/data/set/a.jpg", Outside),
            (".", NotAFile),
            ("a/..", NotAFile),
            ("images/", NotAFile),
            ("images/.", NotAFile),
            ("/srv/data/set", NotAFile),
            ("/srv/data/set/", NotAFile),
            ("a\0.jpg", Missing),
            ("../\0", Missing),
        ] {
            assert_eq!(at(path), Err(expected), "{path:?}");
        }
    }

    #[test]
    fn keys_stay_below_the_prefix() {
        let at = |path| below(&["s3://bucket/set"], true, path);
        for (path, expected) in [
            ("images/7.jpg", "images/7.jpg"),
            ("a/../b.jpg", "b.jpg"),
            ("a//b.jpg", "a//b.jpg"),
            ("s3://bucket/set/images/7.jpg", "images/7.jpg"),
            ("%2e%2e/b.jpg", "%2e%2e/b.jpg"),
        ] {
            assert_eq!(at(path).as_deref(), Ok(expected), "{path}");
        }
        for (path, expected) in [
            ("../b.jpg", Outside),
            ("/images/7.jpg", Outside),
            ("s3://bucket/a.jpg", Outside),
            ("s3://bucket/set2/a.jpg", Outside),
            ("s3://bucket/set/../a.jpg", Outside),
            ("s3://other/set/a.jpg", Outside),
            ("S3://bucket/set/a.jpg", Outside),
            ("https://bucket/set/a.jpg", Outside),
            ("s3://bucket/set", NotAFile),
            ("s3://bucket/set/", NotAFile),
            ("images/", NotAFile),
        ] {
            assert_eq!(at(path), Err(expected), "{path:?}");
        }
    }

    #[test]
    fn the_whole_file_system_may_be_the_root() {
        assert_eq!(below(&["/"], false, "/a.jpg").as_deref(), Ok("a.jpg"));
    }
}
