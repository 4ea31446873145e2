//! A producer's stored input list: a chain of links, each with the files that joined the list and the id of
//! the link before it. The files of all links, oldest first, are the list, which grows at its end only.
//!
//! Invariants:
//! - an id holds the hash of its link's bytes, so reading a chain from its head gives the whole list or an
//!   error;
//! - the ids of one opening have ever more files, so an id that its cursor has passed is never named by it
//!   again (`retention::reclaim` relies on this);
//! - no link is shared between openings: that of another opening may be deleted at any time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::crc::crc64;
use crate::cursor::Cursor;
use crate::error::FormatError;
use crate::ids::{Epoch, Hash, IdError, Nonce};
use crate::json;
use crate::limits::{INPUTS_FAN, INPUTS_FILES_BYTES, INPUTS_LINK_BYTES_MAX};

/// Begins the fingerprint of a local file.
const CRC64: &str = "crc64 ";
const EARLIER_DIGITS: usize = 16;

/// A file of an input list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedFile {
    pub name: String,
    pub size: u64,
    /// For a local file, the CRC-64/NVME of its first and last 64 KiB; for an object, its `ETag`.
    pub fingerprint: String,
    /// The source that the file belongs to, where the producer has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Provenance numbers its lines by the byte at which they begin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_byte: bool,
    /// The growth of its source that it joined with, where the source is followed; 0 is the first list.
    #[serde(default, skip_serializing_if = "is_first")]
    pub growth: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_first(growth: &u64) -> bool {
    *growth == 0
}

impl PinnedFile {
    /// Pins a file by its first and last bytes; `tail` is empty for a small file.
    pub fn new(name: String, size: u64, head: &[u8], tail: &[u8]) -> Self {
        Self {
            name,
            size,
            fingerprint: format!("{CRC64}{:016x}", crc64([head, tail])),
            source: None,
            by_byte: false,
            growth: 0,
        }
    }

    /// Returns whether earlier releases made the fingerprint, by [`earlier_fingerprint`].
    pub fn has_earlier_fingerprint(&self) -> bool {
        let mut digits = self.fingerprint.bytes();
        self.fingerprint.len() == EARLIER_DIGITS && digits.all(|c| c.is_ascii_hexdigit())
    }

    fn line(&self) -> String {
        // A record of strings and numbers always has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Returns the fingerprint that earlier releases gave a file with these first and last bytes, and that an object
/// without an `ETag` has: the first digits of their SHA-256.
pub fn earlier_fingerprint(head: &[u8], tail: &[u8]) -> String {
    let mut hash = Hash::sha256(&[head, tail].concat()).to_string();
    hash.truncate(EARLIER_DIGITS);
    hash
}

/// The id of one link, and of the list that ends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct LinkId {
    /// The epoch of the producer that wrote the link.
    pub epoch: Epoch,
    /// The nonce of the opening that wrote the link.
    pub nonce: Nonce,
    /// Files of the list, those of earlier links included.
    pub files: u64,
    /// SHA-256 of the link's bytes.
    pub hash: Hash,
}

impl LinkId {
    /// Returns whether a cursor may still name the list, or a longer one of the same chain: not when its
    /// opening is over, nor when `head`, which the producer's cursor names now, is a later list of the same
    /// opening.
    pub fn may_be_named(&self, head: Option<&LinkId>, opening_over: bool) -> bool {
        let passed = head.is_some_and(|head| {
            (head.epoch, head.nonce) == (self.epoch, self.nonce) && self.files < head.files
        });
        !opening_over && !passed
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (epoch, nonce, files) = (self.epoch, self.nonce, self.files);
        write!(f, "{epoch}-{nonce}/{files:012}-{}", self.hash)
    }
}

impl FromStr for LinkId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let id = || {
            let (opening, list) = text.split_once('/')?;
            let (epoch, nonce) = opening.split_once('-')?;
            let (files, hash) = list.split_once('-')?;
            Some(Self {
                epoch: epoch.parse().ok()?,
                nonce: nonce.parse().ok()?,
                files: files.parse().ok()?,
                hash: hash.parse().ok()?,
            })
        };
        // Only one form is accepted, so that no other name is taken for an id.
        let id = id().filter(|id| id.to_string() == text);
        id.ok_or_else(|| IdError::Malformed {
            kind: "input list id",
            expected: "TERM-NONCE/FILES-HASH",
            text: text.chars().take(80).collect(),
        })
    }
}

impl From<LinkId> for String {
    fn from(id: LinkId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for LinkId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

/// Returns the list that a cursor refers to. Fails when the cursor is not of the kind that has one.
pub fn head_of(cursor: &Cursor) -> Result<Option<LinkId>, IdError> {
    if cursor.0.is_null() {
        return Ok(None);
    }
    let text = cursor.0.get("inputs").and_then(serde_json::Value::as_str);
    text.unwrap_or_default().parse().map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(rename = "format")]
    _format: u32,
    before: Option<LinkId>,
    files: Vec<PinnedFile>,
}

impl Stored {
    fn read(bytes: &[u8], id: &LinkId, key: &str) -> Result<Self, FormatError> {
        if Hash::sha256(bytes) != id.hash {
            let reason = "damaged: its bytes do not match the hash in its name";
            return Err(FormatError::rule(key, reason));
        }
        let link: Self = json::parse_named(bytes, key, INPUTS_LINK_BYTES_MAX)?;
        let own = link.files.len() as u64;
        let before = link.before.map_or(0, |before| before.files);
        if before.checked_add(own) != Some(id.files) || own == 0 && link.before.is_some() {
            let reason = format!(
                "{own} files behind {before} are not the {} of its name",
                id.files
            );
            return Err(FormatError::rule(key, reason));
        }
        Ok(link)
    }
}

/// One link of a chain in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Link {
    id: LinkId,
    files: u64,
    bytes: u64,
}

/// The links of a list, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chain(Vec<Link>);

/// A new link: its id and the bytes to store.
pub type NewLink = (LinkId, Vec<u8>);

impl AsRef<PinnedFile> for PinnedFile {
    fn as_ref(&self) -> &PinnedFile {
        self
    }
}

/// Bounds on the links of a chain.
#[derive(Debug, Clone, Copy)]
struct LinkBounds {
    /// The number of links of one size class that become one of the next.
    fan: u64,
    /// Bytes of the files that one link names.
    bytes_max: u64,
}

const BOUNDS: LinkBounds = LinkBounds {
    fan: INPUTS_FAN,
    bytes_max: INPUTS_FILES_BYTES,
};

impl Chain {
    /// Returns the newest link, which names the list; `None` before the first [`Chain::grow`].
    pub fn head(&self) -> Option<LinkId> {
        self.0.last().map(|link| link.id)
    }

    /// Returns the ids of all links, oldest first.
    pub fn ids(&self) -> impl Iterator<Item = LinkId> {
        self.0.iter().map(|link| link.id)
    }

    /// Returns the number of files of the list.
    pub fn files(&self) -> u64 {
        self.head().map_or(0, |head| head.files)
    }

    /// Extends the chain to the list `all`, which begins with the files of this one. Returns the new head,
    /// and the links to store before a cursor names it. Small links are merged into the new one, so that a
    /// chain stays short: [`INPUTS_FAN`] links of one size class become one of the next.
    pub fn grow(
        &mut self,
        opening: (Epoch, Nonce),
        all: &[impl AsRef<PinnedFile>],
    ) -> (LinkId, Vec<NewLink>) {
        self.grow_by(opening, all, BOUNDS)
    }

    fn grow_by(
        &mut self,
        opening: (Epoch, Nonce),
        all: &[impl AsRef<PinnedFile>],
        bounds: LinkBounds,
    ) -> (LinkId, Vec<NewLink>) {
        let mut links = if all.len() as u64 > self.files() {
            self.join(opening, all, bounds)
        } else {
            Vec::new()
        };
        let head = self.head().unwrap_or_else(|| {
            // The empty list has an id too.
            links.push(self.link(opening, &[]));
            links[0].0
        });
        (head, links)
    }

    fn join(
        &mut self,
        opening: (Epoch, Nonce),
        all: &[impl AsRef<PinnedFile>],
        bounds: LinkBounds,
    ) -> Vec<NewLink> {
        let new: Vec<u64> = self
            .own(all)
            .map(|file| file.line().len() as u64 + 2)
            .collect();
        let (files, bytes) = (new.len() as u64, new.iter().sum());
        let kept = self.kept(files, bytes, bounds);
        self.0.truncate(kept);
        let mut lines: Vec<String> = Vec::new();
        let (mut links, mut bytes) = (Vec::new(), 0);
        for line in self.own(all).map(PinnedFile::line) {
            if !lines.is_empty() && bytes + line.len() as u64 + 2 > bounds.bytes_max {
                links.push(self.link(opening, &std::mem::take(&mut lines)));
                bytes = 0;
            }
            bytes += line.len() as u64 + 2;
            lines.push(line);
        }
        links.push(self.link(opening, &lines));
        links
    }

    /// Returns the files of `all` that follow this list.
    fn own<'a, F: AsRef<PinnedFile>>(
        &self,
        all: &'a [F],
    ) -> impl Iterator<Item = &'a PinnedFile> + use<'a, F> {
        let known = usize::try_from(self.files()).unwrap_or(usize::MAX);
        all.iter().skip(known).map(AsRef::as_ref)
    }

    /// Returns the number of links that stay when `files` join.
    fn kept(&self, mut files: u64, mut bytes: u64, bounds: LinkBounds) -> usize {
        let size = |files: u64| files.max(1).ilog(bounds.fan);
        let mut kept = self.0.len();
        loop {
            let small = |link: &&Link| {
                link.bytes.saturating_mul(bounds.fan) < bounds.bytes_max
                    && size(link.files) <= size(files)
            };
            let run = self.0[..kept].iter().rev().take_while(small);
            let sums = run.fold((0, 0, 0), |(n, files, bytes), link| {
                (n + 1, files + link.files, bytes + link.bytes)
            });
            if sums.0 as u64 + 1 < bounds.fan || bytes.saturating_add(sums.2) > bounds.bytes_max {
                return kept;
            }
            (kept, files, bytes) = (kept - sums.0, files + sums.1, bytes + sums.2);
        }
    }

    fn link(&mut self, (epoch, nonce): (Epoch, Nonce), lines: &[String]) -> NewLink {
        let before = self
            .head()
            .map_or("null".to_owned(), |id| format!("\"{id}\""));
        let text = lines.join(",\n");
        let text = format!("{{\"format\":1,\"before\":{before},\"files\":[\n{text}\n]}}\n");
        let id = LinkId {
            epoch,
            nonce,
            files: self.files() + lines.len() as u64,
            hash: Hash::sha256(text.as_bytes()),
        };
        self.0.push(Link {
            id,
            files: lines.len() as u64,
            bytes: text.len() as u64,
        });
        (id, text.into_bytes())
    }
}

/// Reads a chain from its head back to its beginning.
#[derive(Debug, Clone)]
pub struct ChainReader {
    next: Option<LinkId>,
    read: Vec<(Link, Vec<PinnedFile>)>,
}

impl ChainReader {
    /// Returns a reader of the list `head`; `None` is the empty list.
    pub fn new(head: Option<LinkId>) -> Self {
        Self {
            next: head,
            read: Vec::new(),
        }
    }

    /// Returns the link to read next; `None` when the chain is whole.
    pub fn next(&self) -> Option<LinkId> {
        self.next
    }

    /// Takes the bytes of the link [`ChainReader::next`], read from `key`. After an error the reader is
    /// unchanged.
    pub fn take(&mut self, bytes: &[u8], key: &str) -> Result<(), FormatError> {
        let Some(id) = self.next else {
            return Ok(());
        };
        let Stored { before, files, .. } = Stored::read(bytes, &id, key)?;
        let link = Link {
            id,
            files: files.len() as u64,
            bytes: bytes.len() as u64,
        };
        self.read.push((link, files));
        self.next = before;
        Ok(())
    }

    /// Returns the chain and its files, once all links are read.
    pub fn finish(mut self) -> (Chain, Vec<PinnedFile>) {
        self.read.reverse();
        let (links, files): (Vec<Link>, Vec<_>) = self.read.into_iter().unzip();
        (Chain(links), files.concat())
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
