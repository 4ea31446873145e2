//! Decompression of gzip and zstd, recognized by the first bytes of a file rather than by its name. Concatenated
//! members and frames are read as one stream.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

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
}

impl Codec {
    /// Number of bytes that tell codecs apart.
    pub(super) const HEAD_BYTES: u64 = 4;

    /// Returns the codec for a file that begins with `head`.
    pub(super) fn from_head(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }

    /// Returns the name of the codec for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the decompressed bytes of `file`, which is read from its beginning.
    pub(super) fn decode(self, file: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::Plain => file,
            Self::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(
                128 << 10,
                file,
            ))),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::new(file)?),
        })
    }
}
