//! The form that the content of a file shows, where `source.format = "auto"` takes for one text by its name.

use bytes::Bytes;

use super::{Reason, SourceError};
use crate::transform::json;

/// Bytes in which a binary file has a NUL.
const NUL_BYTES: usize = 8 << 10;

/// The form that the first bytes of a file show.
const MAGIC: [(&[u8], &str); 22] = [
    (b"PAR1", "a Parquet file"),
    (b"\x93NUMPY", "a .npy file"),
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a rar archive"),
    (b"\x04\x22\x4d\x18", "lz4 data"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy data"),
    (b"\x1f\x9d", "compress (.Z) data"),
    (b"\x5d\x00\x00", "lzma data"),
    (b"ARROW1", "an Arrow file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"Obj\x01", "an Avro file"),
    (b"ORC", "an ORC file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"\x7fELF", "a program"),
    (b"\x80\x04\x95", "a pickle"),
    (b"\x80\x05\x95", "a pickle"),
    (b"\x80\x03", "a pickle"),
];

/// The form of a file other than one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Data that fails as UTF-8 too, so that it was never read as text.
    Binary(&'static str),
    /// Something that may pass for text, and the format that it is in.
    Other(&'static str, &'static str),
}

/// Returns `text`, which is all of the file `name`, unless its content is something else than its name says. Fails where
/// the content would pass for text.
pub(super) fn as_named(name: &str, text: Bytes) -> Result<Result<Bytes, Reason>, SourceError> {
    match content(&text) {
        None => Ok(Ok(text)),
        Some(Content::Binary(what)) => Ok(Err(Reason::NotTextFile { what })),
        Some(Content::Other(found, proposal)) => Err(SourceError::NotAsNamed {
            file: name.to_owned(),
            found,
            proposal,
        }),
    }
}

/// Returns what `text` is, unless it is a text as far as its content says.
fn content(text: &[u8]) -> Option<Content> {
    let known = MAGIC.iter().find(|(magic, _)| text.starts_with(magic));
    if let Some((_, what)) = known.filter(|_| std::str::from_utf8(text).is_err()) {
        return Some(Content::Binary(what));
    }
    if text.get(257..262) == Some(b"ustar") {
        return Some(Content::Other("is a tar", "webdataset"));
    }
    // UTF-16 with a mark fails as UTF-8, and its error says so.
    let marked = text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff");
    let begin = &text[..text.len().min(NUL_BYTES)];
    if !marked && memchr::memchr(0, begin).is_some() {
        let found = "holds NUL bytes, as binary data and UTF-16 do";
        return Some(Content::Other(found, "lines"));
    }
    let unmarked = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let text = unmarked.trim_ascii_start();
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match text {
        [b'{', ..] if json::is_json(line) => {
            Some(Content::Other("begins with a JSON object", "jsonl"))
        }
        [b'{', ..] if json::is_json(text) => Some(Content::Other(
            "is a JSON object on several lines, which `jq -c . FILE` puts on one",
            "jsonl",
        )),
        [b'[', rest @ ..] if rest.trim_ascii_start().starts_with(b"{") && json::is_json(text) => {
            Some(Content::Other(
                "is a JSON array, of which `jq -c '.[]' FILE` makes lines",
                "jsonl",
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_texts_and_other_content_is_named() {
        for text in [
            "",
            "plain",
            "{not json",
            "{a}\nb",
            "[1, 2]",
            "[x] a list",
            "ORC is a monster",
            "\u{feff}text",
            "{{ template }}",
            "[{\"a\": 1}",
            "GIF89 is a format",
        ] {
            assert_eq!(content(text.as_bytes()), None, "{text}");
        }
        let mut tar = vec![b'a'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        for (bytes, part) in [
            (
                &b"{\"a\": 1}\n{\"a\": 2}\n"[..],
                "begins with a JSON object",
            ),
            (b"\n {\"a\": NaN}", "begins with a JSON object"),
            (b"\xef\xbb\xbf{\"a\": 1}", "begins with a JSON object"),
            (b"{\n \"a\": 1\n}\n", "several lines"),
            (b"[\n {\"a\": 1},\n {\"a\": 2}]", "a JSON array"),
            (b"a\0b\0", "NUL bytes"),
            (&tar, "is a tar"),
        ] {
            let Some(Content::Other(found, _)) = content(bytes) else {
                panic!("{part}")
            };
            assert!(found.contains(part), "{found}");
        }
        for (bytes, what) in [
            (&b"PK\x03\x04\xff\xff"[..], "a zip archive"),
            (b"%PDF-1.7\n\xe2\xe3", "a PDF"),
            (b"\xff\xd8\xff\xe0", "a picture"),
        ] {
            assert_eq!(content(bytes), Some(Content::Binary(what)));
        }
    }
}
