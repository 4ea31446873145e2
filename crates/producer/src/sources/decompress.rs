//! Decompression of gzip and zstd, recognized by the first bytes of a file rather than by its name. Concatenated
//! members and frames are read as one stream.

use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;

/// The compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Plain,
    Gzip,
    Zstd,
}

impl Codec {
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
