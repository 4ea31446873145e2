//! The copy of an intent in its own key, `<stem>.<copy>.json`: the object's bytes through raw DEFLATE (RFC
//! 1951) and base64 for file names (RFC 4648, section 5, unpadded).

use std::borrow::Cow;
use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use crate::error::FormatError;
use crate::limits::INTENT_BYTES_MAX;

const END: &str = ".json";

/// Returns `key` with a copy of `bytes` in it, or unchanged when that would be longer than `max`.
pub(super) fn add(key: String, bytes: &[u8], max: usize) -> String {
    let with = deflated(bytes).and_then(|copy| {
        let stem = key.strip_suffix(END)?;
        let with = format!("{stem}.{}{END}", BASE64.encode(copy));
        (with.len() <= max).then_some(with)
    });
    with.unwrap_or(key)
}

fn deflated(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

/// Splits a key into stem and copy.
fn split(key: &str) -> Option<(&str, &str)> {
    let name_at = key.rfind('/').map_or(0, |slash| slash + 1);
    let dot = name_at + key[name_at..].find('.')?;
    let copy = key[dot + 1..].strip_suffix(END)?;
    Some((&key[..dot], copy))
}

/// Returns the key without the copy, as messages show it.
pub fn stem(key: &str) -> Cow<'_, str> {
    match split(key) {
        Some((stem, _)) => Cow::Owned(format!("{stem}{END}")),
        None => Cow::Borrowed(key),
    }
}

/// Returns the intent's bytes if its key carries them; fails when they can't be unpacked.
pub fn carried(key: &str) -> Option<Result<Vec<u8>, FormatError>> {
    let (_, copy) = split(key)?;
    let refused = |why: String| FormatError::rule(&stem(key), why);
    let unpack = || {
        let packed = BASE64
            .decode(copy)
            .map_err(|e| refused(format!("the copy in its key is not base64: {e}")))?;
        let mut bytes = Vec::new();
        // One byte more than allowed shows that there is too much.
        DeflateDecoder::new(packed.as_slice())
            .take(INTENT_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| refused(format!("the copy in its key is damaged: {e}")))?;
        if bytes.len() > INTENT_BYTES_MAX {
            let most = format!("the copy in its key is larger than {INTENT_BYTES_MAX} bytes");
            return Err(refused(most));
        }
        Ok(bytes)
    };
    Some(unpack())
}
