//! gzip and zstd, told by their first bytes rather than by the file's name. Concatenated members
//! and frames are read through.

use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Plain,
    Gzip,
    Zstd,
}

impl Codec {
    /// By the first bytes of the file.
    pub(super) fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }

    /// For messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// The decompressed bytes of `file`, read from its beginning.
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
