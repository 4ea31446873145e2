//! Input lists and cursors.

use batchweave_core::cursor::Cursor;
use batchweave_core::ids::{Hash, Nonce};
use batchweave_core::inputs::{self, ChainReader, LinkId, PinnedFile};
use batchweave_core::keys;
use batchweave_core::limits::INPUTS_LINK_BYTES_MAX;
use serde::Deserialize;

use crate::check::good;

/// A line `+` begins the next link of a chain, whose text is the inside of its list of files; any other
/// input is one link as it is stored.
pub(super) fn inputs(input: &[u8]) {
    if let Some(files) = input.strip_prefix(b"+\n") {
        return chain(files);
    }
    #[derive(Deserialize)]
    struct Link {
        before: Option<LinkId>,
        files: Vec<serde_json::Value>,
    }
    let counted = serde_json::from_slice::<Link>(input).map_or(0, |link| {
        let before = link.before.map_or(0, |before| before.files);
        before.wrapping_add(link.files.len() as u64)
    });
    let mut reader = ChainReader::new(Some(id(counted, input)));
    if reader.take(input, "inputs/x").is_ok()
        && let Some(before) = reader.next()
    {
        let key = keys::inputs(&good("a".parse(), "a name"), &before);
        assert_eq!(keys::parse_inputs(&key).map(|(_, link)| link), Some(before));
    }
}

fn id(files: u64, bytes: &[u8]) -> LinkId {
    LinkId {
        epoch: 1,
        nonce: Nonce([7; 8]),
        files,
        hash: Hash::sha256(bytes),
    }
}

/// Reads a chain of links from its head, and extends it by a file.
fn chain(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let Some(links) = links_of(&text) else {
        return;
    };
    let mut reader = ChainReader::new(links.last().map(|(id, _)| *id));
    for (id, bytes) in links.iter().rev() {
        assert_eq!(reader.next(), Some(*id));
        // A link without files is refused where another is before it.
        if reader.take(bytes, "inputs/x").is_err() {
            return;
        }
    }
    assert_eq!(reader.next(), None);
    let (mut chain, mut files) = reader.finish();
    assert_eq!(chain.files(), files.len() as u64);
    files.push(PinnedFile::new("z".into(), 1, b"z", b""));
    let (head, new) = chain.grow((2, Nonce([8; 8])), &files);
    assert_eq!(head.files, files.len() as u64);
    let new: std::collections::BTreeMap<_, _> = new.into_iter().chain(links).collect();
    let mut reader = ChainReader::new(Some(head));
    while let Some(next) = reader.next() {
        let Some(bytes) = new.get(&next) else {
            panic!("{next} is not among the links");
        };
        if bytes.len() > INPUTS_LINK_BYTES_MAX {
            return;
        }
        good(reader.take(bytes, "inputs/x"), "a link that was made");
    }
    assert_eq!(reader.finish().1, files, "the list that was made");
}

/// Returns the links of a chain with these lists of files, or `None` when one is not such a list.
fn links_of(text: &str) -> Option<Vec<(LinkId, Vec<u8>)>> {
    let mut links: Vec<(LinkId, Vec<u8>)> = Vec::new();
    for files in text.split("\n+\n").take(16) {
        let list: Vec<PinnedFile> = serde_json::from_str(&format!("[{files}]")).ok()?;
        let before = links.last().map(|(id, _)| *id);
        let named = before.map_or("null".to_owned(), |id| format!("\"{id}\""));
        let bytes = format!("{{\"format\":1,\"before\":{named},\"files\":[{files}]}}");
        let count = before.map_or(0, |before| before.files) + list.len() as u64;
        links.push((id(count, bytes.as_bytes()), bytes.into_bytes()));
    }
    Some(links)
}

/// A cursor has one form, and names its list or not.
pub(super) fn cursor(input: &[u8]) {
    let Ok(cursor) = serde_json::from_slice::<Cursor>(input) else {
        return;
    };
    let bytes = cursor.bytes();
    let again: Cursor = good(serde_json::from_slice(&bytes), "a cursor's own bytes");
    assert_eq!(again.bytes(), bytes);
    assert_eq!(again.hash(), cursor.hash());
    assert_eq!(cursor.fits(), again.fits());
    if let Ok(Some(head)) = inputs::head_of(&cursor) {
        assert_eq!(head.to_string().parse(), Ok(head));
    }
}
