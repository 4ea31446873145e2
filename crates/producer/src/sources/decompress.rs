//! Decompression of gzip, zstd, bzip2 and xz, recognized by the first bytes of a file rather than by its name. Concatenated
//! members and frames are read as one stream.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use batchweave_daemon::config::ByteSize;
use flate2::bufread::GzDecoder;

use super::Reason;

/// The bytes of compressed data that are read at a time.
const BUFFER_BYTES: usize = 128 << 10;
/// The largest window of the zstd format on 64 bits.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;
/// A zstd block of at most 128 KiB takes at least three bytes of the file.
const ZSTD_BLOCK_BYTES: (u64, u64) = (3, 128 << 10);

/// Counts the bytes that are read.
pub(super) struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R> Counted<R> {
    /// Returns the reader and its count.
    pub(super) fn new(inner: R) -> (Self, Arc<AtomicU64>) {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Self {
            inner,
            count: Arc::clone(&count),
        };
        (counted, count)
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        self.count.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// The compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Plain,
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

/// The bound on the memory of a decoder.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecoderMemory {
    /// Most memory of a window in bytes, `source.decompress_memory`.
    pub(super) most: u64,
    /// Size of the compressed file in bytes.
    pub(super) file: u64,
}

impl Codec {
    /// Number of bytes that tell codecs apart, and hold the size of a zstd window.
    pub(super) const HEAD_BYTES: u64 = 18;

    /// Returns the codec for a file that begins with `head`.
    pub(super) fn from_head(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame of data, or one to be skipped, as pzstd and seekable files begin with.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [
                b'B',
                b'Z',
                b'h',
                b'1'..=b'9',
                0x31,
                0x41,
                0x59,
                0x26,
                0x53,
                0x59,
                ..,
            ]
            | [
                b'B',
                b'Z',
                b'h',
                b'1'..=b'9',
                0x17,
                0x72,
                0x45,
                0x38,
                0x50,
                0x90,
                ..,
            ] => Self::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            _ => Self::Plain,
        }
    }

    /// Returns the name of the codec for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
        }
    }

    /// Returns the decompressed bytes of `file`, which is read from its beginning.
    pub(super) fn decode(
        self,
        file: Box<dyn Read + Send>,
        memory: DecoderMemory,
    ) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::Plain => file,
            Self::Gzip => Box::new(GzipMembers::new(BufReader::with_capacity(
                BUFFER_BYTES,
                file,
            ))),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(file)?;
                decoder.window_log_max(memory.zstd_window_log())?;
                Box::new(decoder)
            }
            Self::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(
                BufReader::with_capacity(BUFFER_BYTES, file),
            )),
            Self::Xz => {
                let file = BufReader::with_capacity(BUFFER_BYTES, file);
                let most = u32::try_from(memory.most / 1024).unwrap_or(u32::MAX);
                Box::new(lzma_rust2::XzReader::new_mem_limit(file, true, most))
            }
        })
    }

    /// Returns the reason for data that a decoder refused with `why`. `head` is the beginning of the file.
    pub(super) fn reason(self, why: &io::Error, head: &[u8], memory: DecoderMemory) -> Reason {
        let codec = self.name();
        let detail = why.to_string();
        let zstd = |words: &str| self == Self::Zstd && detail.contains(words);
        let too_large = self == Self::Xz && why.kind() == io::ErrorKind::OutOfMemory;
        // The library has no codes for these.
        if zstd("too much memory") || too_large {
            let window = zstd_window(head).filter(|_| self == Self::Zstd);
            let needed = window.map_or("more".to_owned(), |bytes| {
                format!("\"{}\"", ByteSize(bytes.next_power_of_two()))
            });
            let most = ByteSize(memory.most);
            return Reason::DecoderMemory {
                codec,
                needed,
                most,
            };
        }
        if zstd("Dictionary mismatch") {
            return Reason::ZstdDictionary;
        }
        Reason::Damaged { codec, detail }
    }
}

impl DecoderMemory {
    /// Returns the largest window that is accepted: one that fits the bound, or any for a file too small to fill more.
    fn zstd_window_log(self) -> u32 {
        let (stored, block) = ZSTD_BLOCK_BYTES;
        let filled = (self.file / stored + 1).saturating_mul(block);
        if filled <= self.most {
            return ZSTD_WINDOW_LOG_MAX;
        }
        self.most.max(1).ilog2().clamp(10, ZSTD_WINDOW_LOG_MAX)
    }
}

/// Returns the window of the first frame in bytes; `None` where it has none, or begins later.
fn zstd_window(head: &[u8]) -> Option<u64> {
    let [0x28, 0xb5, 0x2f, 0xfd, descriptor, window, ..] = head else {
        return None;
    };
    if descriptor & 0x20 != 0 {
        return None;
    }
    let base = 1u64 << (10 + (window >> 3));
    Some(base + base / 8 * u64::from(window & 7))
}

/// The members of a gzip file one after the other. Zeros behind a member are padding, as tapes and block devices leave them.
struct GzipMembers<R> {
    /// `None` at the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> GzipMembers<R> {
    fn new(from: R) -> Self {
        Self {
            member: Some(GzDecoder::new(from)),
        }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let n = member.read(out)?;
            if n > 0 || out.is_empty() {
                return Ok(n);
            }
            let more = skip_zeros(member.get_mut())?;
            let ended = self.member.take().filter(|_| more);
            self.member = ended.map(|member| GzDecoder::new(member.into_inner()));
        }
        Ok(0)
    }
}

/// Passes over zeros. Returns whether something follows.
fn skip_zeros(from: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let buffer = match from.fill_buf() {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if buffer.is_empty() {
            return Ok(false);
        }
        let zeros = buffer.iter().take_while(|byte| **byte == 0).count();
        let all = zeros == buffer.len();
        from.consume(zeros);
        if !all {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests;
