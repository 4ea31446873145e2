//! Keys that the contract allows, checked before each request.

use crate::{Effect, ErrorKind, Op, StoreError};

/// S3's limit for the root's prefix and a key together.
pub(crate) const KEY_BYTES_MAX: usize = 1024;

/// Refuses a key that is not `/`-separated segments of `[A-Za-z0-9._@=-]`.
pub(crate) fn check(op: Op, root: &str, key: &str) -> Result<(), StoreError> {
    match fault_of(key) {
        None => Ok(()),
        Some(why) => Err(invalid(op, root, key, why)),
    }
}

/// Refuses a list prefix that is neither empty nor a valid key followed by `/`.
pub(crate) fn check_prefix(op: Op, root: &str, prefix: &str) -> Result<(), StoreError> {
    if prefix.is_empty() {
        return Ok(());
    }
    match prefix.strip_suffix('/') {
        Some(key) => check(op, root, key),
        None => Err(invalid(
            op,
            root,
            prefix,
            "a list prefix ends in '/' or is empty",
        )),
    }
}

/// The keys that a store accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Those that the contract allows.
    Ours,
    /// Any, whose objects are never written.
    Foreign,
}

impl Keys {
    /// Refuses a key of which there is no object, or of one that may not be written.
    pub(crate) fn check(self, op: Op, root: &str, key: &str) -> Result<(), StoreError> {
        let writes = matches!(op, Op::Create | Op::Upload);
        match (self, writes) {
            (Self::Ours, _) => check(op, root, key),
            (Self::Foreign, true) => Err(invalid(
                op,
                root,
                key,
                "the store is input, which is only read",
            )),
            (Self::Foreign, false) => match foreign_fault(key) {
                None => Ok(()),
                Some(why) => Err(invalid(op, root, key, why)),
            },
        }
    }

    /// Refuses a prefix that no key begins with.
    pub(crate) fn check_prefix(self, op: Op, root: &str, prefix: &str) -> Result<(), StoreError> {
        match self {
            Self::Ours => check_prefix(op, root, prefix),
            Self::Foreign => Ok(()),
        }
    }

    /// Refuses a range whose end lies before its start.
    pub(crate) fn check_range(
        self,
        root: &str,
        key: &str,
        range: &std::ops::Range<u64>,
    ) -> Result<(), StoreError> {
        self.check(Op::GetRange, root, key)?;
        forwards(root, key, range)
    }
}

/// Returns why a request for `key` would reach no object or another one.
pub(crate) fn foreign_fault(key: &str) -> Option<&'static str> {
    if key.is_empty() {
        return Some("empty");
    }
    (key.len() > KEY_BYTES_MAX).then_some("longer than 1024 bytes")
}

/// Refuses a range whose end lies before its start.
pub(crate) fn check_range(
    root: &str,
    key: &str,
    range: &std::ops::Range<u64>,
) -> Result<(), StoreError> {
    check(Op::GetRange, root, key)?;
    forwards(root, key, range)
}

fn forwards(root: &str, key: &str, range: &std::ops::Range<u64>) -> Result<(), StoreError> {
    if range.start > range.end {
        let why = format!("range {}..{} ends before it starts", range.start, range.end);
        return Err(invalid(Op::GetRange, root, key, &why));
    }
    Ok(())
}

fn invalid(op: Op, root: &str, key: &str, why: &str) -> StoreError {
    let detail = format!("invalid key {key:?}: {why}");
    StoreError::new(op, root, ErrorKind::Invalid, Effect::DidNot, detail)
}

/// Returns why `key` is not allowed.
pub(crate) fn fault_of(key: &str) -> Option<&'static str> {
    if key.len() > KEY_BYTES_MAX {
        return Some("longer than 1024 bytes");
    }
    for segment in key.split('/') {
        match segment {
            "" => return Some("empty segment"),
            "." | ".." => return Some("segment '.' or '..'"),
            _ if !segment.bytes().all(is_allowed) => {
                return Some("only A-Z a-z 0-9 . _ @ = - and / are allowed");
            }
            _ => {}
        }
    }
    None
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._@=-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for good in ["a", "log/0001.json", "data/p-1/3-ab/x.y@z=1_", "..a/b.."] {
            assert_eq!(fault_of(good), None, "{good}");
        }
        for bad in [
            "", "/a", "a/", "a//b", ".", "a/../b", "a b", "a%b", "ä", "a\\b", "a\0",
        ] {
            assert!(fault_of(bad).is_some(), "{bad:?} was allowed");
        }
        assert!(fault_of(&"a".repeat(1025)).is_some());
    }

    #[test]
    fn prefixes_and_ranges() {
        assert!(check_prefix(Op::List, "memory://t", "").is_ok());
        assert!(check_prefix(Op::List, "memory://t", "a/b/").is_ok());
        assert!(check_prefix(Op::List, "memory://t", "a").is_err());
        assert!(check_prefix(Op::List, "memory://t", "/").is_err());
        let backwards = std::ops::Range { start: 2, end: 1 };
        assert!(check_range("memory://t", "a", &backwards).is_err());
    }
}
