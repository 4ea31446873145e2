//! The members of a tar, one after another. The `tar` crate reads the headers of each as those of an archive of its own:
//! so the data between them can be read or passed over here, and the reading can begin at any member.

use std::io::{self, BufRead, BufReader, Read};

use tar::{Archive, Header};

use super::super::Reason;
use super::super::unit_reader::ReadFailure;

/// Members begin at multiples of this.
const BLOCK_BYTES: u64 = 512;
/// Most bytes of the headers of a member, with its long name.
const HEADERS_BYTES_MAX: u64 = 1 << 20;
const BUFFER_BYTES: usize = 256 << 10;

/// A file in a tar that belongs to a sample.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The path up to the first dot of its last part.
    pub(super) key: Vec<u8>,
    /// The rest, in lower case.
    pub(super) field: String,
    /// Bytes in the tar.
    pub(super) size: u64,
    /// Its data has holes, which the tar does not store.
    pub(super) sparse: bool,
}

impl Member {
    fn name(&self) -> String {
        format!("{}.{}", String::from_utf8_lossy(&self.key), self.field)
    }
}

/// A cursor over the members of a tar.
pub(super) struct Members {
    stream: Stream,
    scan: u64,
}

impl Members {
    /// Returns a cursor over the members from `offset` on, where `stream` begins.
    pub(super) fn new(stream: Box<dyn Read + Send>, offset: u64) -> Self {
        Self {
            stream: Stream {
                inner: BufReader::with_capacity(BUFFER_BYTES, stream),
                at: offset,
                left: u64::MAX,
                ended: false,
                failure: None,
            },
            scan: offset,
        }
    }

    /// Returns the offset at which the last call of [`Self::next`] began: everything before the member that it returned
    /// and behind the one before, such as global headers and folders, is read again from there.
    pub(super) fn scan(&self) -> u64 {
        self.scan
    }

    /// Returns the next file that belongs to a sample; `None` at the end of the archive. The data of the one before must be
    /// read or passed over.
    pub(super) fn next(&mut self) -> Result<Option<Member>, ReadFailure> {
        self.scan = self.stream.at;
        loop {
            let Some(entry) = self.entry()? else {
                return Ok(None);
            };
            let Entry { name, size, sparse } = entry;
            let Some((key, field)) = name.as_deref().and_then(key_and_field) else {
                self.skip(padded(size), || "an entry".to_owned())?;
                continue;
            };
            return Ok(Some(Member {
                key,
                field,
                size,
                sparse,
            }));
        }
    }

    /// Reads the headers of the next entry; `None` at the end of the archive.
    fn entry(&mut self) -> Result<Option<Entry>, ReadFailure> {
        if let Some(entry) = self.stream.plain_entry() {
            return Ok(Some(entry));
        }
        let begin = self.stream.at;
        self.stream.left = HEADERS_BYTES_MAX;
        let entry = entry(&mut self.stream);
        let left = std::mem::replace(&mut self.stream.left, u64::MAX);
        let ended = self.stream.ended;
        match entry {
            Ok(None) if self.stream.at == begin => {
                Err(broken("ends without the end of an archive".to_owned()))
            }
            Ok(entry) => Ok(entry),
            // The error of the crate shows bytes of the header.
            Err(_) => Err(self.stream.explain(|| {
                if ended {
                    "ends in the middle of a header".to_owned()
                } else if left == 0 {
                    format!("has headers of more than {HEADERS_BYTES_MAX} bytes at byte {begin}")
                } else {
                    format!("has no valid header at byte {begin}")
                }
            })),
        }
    }

    /// Returns the data of `member`, which [`Self::next`] returned last.
    pub(super) fn read(&mut self, member: &Member) -> Result<Vec<u8>, ReadFailure> {
        let mut data = Vec::with_capacity(usize::try_from(member.size).unwrap_or_default());
        let all = self
            .stream
            .pass(member.size, |part| data.extend_from_slice(part));
        if !all {
            return Err(self.stream.explain(|| cut_in(&member.name())));
        }
        self.skip(padded(member.size) - member.size, || member.name())?;
        Ok(data)
    }

    /// Passes over the data of `member`, which [`Self::next`] returned last.
    pub(super) fn pass(&mut self, member: &Member) -> Result<(), ReadFailure> {
        self.skip(padded(member.size), || member.name())
    }

    fn skip(&mut self, bytes: u64, name: impl Fn() -> String) -> Result<(), ReadFailure> {
        if self.stream.pass(bytes, |_| ()) {
            Ok(())
        } else {
            Err(self.stream.explain(|| cut_in(&name())))
        }
    }

    /// Checks, at the end of the archive, that only zeros follow: what is left out otherwise may be another archive.
    pub(super) fn finish(&mut self) -> Result<(), ReadFailure> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = self.stream.read(&mut buffer);
            let Ok(read) = read else {
                return Err(self.stream.explain(String::new));
            };
            if read == 0 {
                return Ok(());
            }
            if buffer[..read].iter().any(|byte| *byte != 0) {
                let detail = "has data behind its end, as two archives joined with cat have";
                return Err(broken(detail.to_owned()));
            }
        }
    }
}

/// An entry of a tar, by its headers.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// The path of a regular file.
    name: Option<Vec<u8>>,
    size: u64,
    sparse: bool,
}

/// Reads the headers of one entry, long names and extended headers included.
fn entry(stream: &mut Stream) -> io::Result<Option<Entry>> {
    let mut archive = Archive::new(stream);
    let Some(entry) = archive.entries()?.next() else {
        return Ok(None);
    };
    let mut entry = entry?;
    let kind = entry.header().entry_type();
    let with_map = kind.is_gnu_sparse();
    let regular = kind.is_file() || kind.is_contiguous() || with_map;
    // The size of a sparse file is that of the extracted one.
    let size = if with_map {
        entry.header().entry_size()?
    } else {
        entry.size()
    };
    if !regular {
        let (name, sparse) = (None, false);
        return Ok(Some(Entry { name, size, sparse }));
    }
    let name = entry.path_bytes().into_owned();
    let extensions = entry.pax_extensions()?.into_iter().flatten();
    let sparse = with_map
        || extensions
            .filter_map(Result::ok)
            .any(|extension| extension.key_bytes().starts_with(b"GNU.sparse."));
    Ok(Some(Entry {
        name: Some(name),
        size,
        sparse,
    }))
}

/// Returns the entry of a valid header that is that of a regular file by itself.
fn plain(header: &Header) -> Option<Entry> {
    let bytes = header.as_bytes();
    // The checksum counts as blanks in itself.
    let (before, rest) = bytes.split_at(148);
    let others = before.iter().chain(&rest[8..]);
    let sum = others.map(|byte| u32::from(*byte)).sum::<u32>() + 8 * u32::from(b' ');
    let valid = header.entry_type().is_file() && header.cksum().is_ok_and(|stored| stored == sum);
    if !valid {
        return None;
    }
    Some(Entry {
        name: Some(header.path_bytes().into_owned()),
        size: header.entry_size().ok()?,
        sparse: false,
    })
}

/// Returns key and field of a file, as webdataset divides its path; `None` for files that belong to no sample: without a
/// dot, with a name that begins with one, and at or below `__names__`.
fn key_and_field(path: &[u8]) -> Option<(Vec<u8>, String)> {
    let top = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    if top.len() >= 4 && top.starts_with(b"__") && top.ends_with(b"__") {
        return None;
    }
    let base = memchr::memrchr(b'/', path).map_or(0, |slash| slash + 1);
    let length = memchr::memchr(b'.', path.get(base..)?)?;
    let (key, field) = path.split_at_checked(base + length)?;
    let field = String::from_utf8_lossy(field.get(1..)?).to_lowercase();
    (length > 0).then(|| (key.to_vec(), field))
}

/// Returns the bytes of data of `size` with those that fill its last block.
fn padded(size: u64) -> u64 {
    size.checked_next_multiple_of(BLOCK_BYTES)
        .unwrap_or(u64::MAX)
}

fn cut_in(name: &str) -> String {
    format!("ends in the middle of {name}")
}

fn broken(detail: String) -> ReadFailure {
    Reason::Tar { detail }.into()
}

/// A stream that knows its offset, and keeps the reason when it fails: the errors of the `tar` crate do not tell failed
/// reads from a wrong content.
struct Stream {
    inner: BufReader<Box<dyn Read + Send>>,
    at: u64,
    /// Bytes that may be read.
    left: u64,
    ended: bool,
    failure: Option<io::Error>,
}

impl Stream {
    /// Reads the header of a file without extended headers, if that is next and in the buffer: most headers are, and the
    /// crate would make an archive for each.
    fn plain_entry(&mut self) -> Option<Entry> {
        let block = self.inner.buffer().get(..BLOCK_BYTES as usize)?;
        let entry = plain(Header::from_byte_slice(block))?;
        self.inner.consume(BLOCK_BYTES as usize);
        self.at += BLOCK_BYTES;
        Some(entry)
    }

    /// Gives the next `bytes` to `take`, part by part, without a copy. Returns false when the stream fails or ends before.
    fn pass(&mut self, bytes: u64, mut take: impl FnMut(&[u8])) -> bool {
        let mut left = bytes;
        while left > 0 {
            let buffer = match self.inner.fill_buf() {
                Ok(buffer) => buffer,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => {
                    self.failure = Some(why);
                    return false;
                }
            };
            if buffer.is_empty() {
                self.ended = true;
                return false;
            }
            let part = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            take(&buffer[..part]);
            self.inner.consume(part);
            self.at += part as u64;
            left -= part as u64;
        }
        true
    }

    /// Returns the failure of the last read; or, if none failed, that the archive is broken.
    fn explain(&mut self, detail: impl FnOnce() -> String) -> ReadFailure {
        match self.failure.take() {
            Some(why) => ReadFailure::Io(why),
            None => broken(detail()),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(out.len());
        if most == 0 && !out.is_empty() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = loop {
            match self.inner.read(&mut out[..most]) {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let read = read.map_err(|why| {
            let kind = why.kind();
            self.failure = Some(why);
            io::Error::from(kind)
        })?;
        self.ended = read == 0 && !out.is_empty();
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
