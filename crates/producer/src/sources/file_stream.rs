//! The bytes of one file, decompressed, and what their failures mean.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::decompress::{Codec, Counted, DecoderMemory};
use super::{InputFile, Reason, SourceError, remote};

/// The decompressed bytes of a stream.
pub(super) type Stream = Box<dyn Read + Send>;

/// A file whose bytes can be read from any offset on.
pub(super) struct FileStream<'a> {
    pub(super) file: &'a InputFile,
    codec: Codec,
    /// The first bytes of a compressed file.
    head: Vec<u8>,
    /// Bytes of a compressed file that the decoder has taken.
    packed: Option<Arc<AtomicU64>>,
    /// The bytes from the beginning on, when they are requested already.
    begun: Option<Stream>,
    /// Most memory of the window of a decoder in bytes.
    memory: u64,
}

impl<'a> FileStream<'a> {
    pub(super) fn new(file: &'a InputFile, memory: u64) -> Self {
        Self {
            file,
            codec: Codec::Plain,
            head: Vec::new(),
            packed: None,
            begun: None,
            memory,
        }
    }

    /// Gives the bytes from the beginning on, which are requested already.
    pub(super) fn begin(&mut self, begun: Stream) {
        self.begun = Some(begun);
    }

    /// Opens the decompressed bytes from `offset` on.
    pub(super) fn open_at(&mut self, offset: u64) -> Result<Stream, SourceError> {
        self.try_open_at(offset).map_err(|why| self.unreadable(why))
    }

    /// As [`Self::open_at`]; a failure may be [`Self::damage`].
    pub(super) fn try_open_at(&mut self, offset: u64) -> io::Result<Stream> {
        if offset > 0 && self.begun.is_none() {
            self.codec = Codec::from_head(&remote::head(self.file, Codec::HEAD_BYTES)?);
            if self.codec == Codec::Plain {
                return remote::open(self.file, offset);
            }
        }
        let mut begun = match self.begun.take() {
            Some(begun) => begun,
            None => remote::open(self.file, 0)?,
        };
        let mut head = Vec::new();
        let mut first = begun.by_ref().take(Codec::HEAD_BYTES);
        first.read_to_end(&mut head)?;
        self.codec = Codec::from_head(&head);
        self.head.clone_from(&head);
        let memory = self.decoder_memory();
        let whole = io::Cursor::new(head).chain(begun);
        let mut stream: Stream = if self.codec == Codec::Plain {
            Box::new(whole)
        } else {
            let (file, count) = Counted::new(whole);
            self.packed = Some(count);
            self.codec.decode(Box::new(file), memory)?
        };
        // An earlier reader returned this place, so these bytes were readable then.
        io::copy(&mut stream.by_ref().take(offset), &mut io::sink())?;
        Ok(stream)
    }

    /// Returns whether the bytes are stored as they are read.
    pub(super) fn is_plain(&self) -> bool {
        self.codec == Codec::Plain
    }

    /// Returns the stored bytes that were decompressed; `None` of a file that is not compressed.
    pub(super) fn packed(&self) -> Option<u64> {
        let count = self.packed.as_ref()?;
        Some(count.load(Ordering::Relaxed))
    }

    /// Fails if the file changed its size: it then looks damaged, but is not a bad document.
    pub(super) fn check_size(&self) -> Result<(), SourceError> {
        remote::check_size(self.file).map_err(|why| self.unreadable(why))
    }

    pub(super) fn unreadable(&self, why: io::Error) -> SourceError {
        SourceError::Unreadable {
            file: self.file.pin.name.clone(),
            why,
        }
    }

    /// Returns what damage to compressed data is; every other failure is an error.
    pub(super) fn damage(&self, why: io::Error) -> Result<Reason, SourceError> {
        let content = matches!(
            why.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
        ) || self.codec == Codec::Xz
            && matches!(
                why.kind(),
                io::ErrorKind::OutOfMemory | io::ErrorKind::Unsupported
            );
        // The zstd decoder reports damage as `Other`, which failures of the store and shrunken files are too.
        let zstd = self.codec == Codec::Zstd
            && why.get_ref().is_none_or(|e| {
                !e.is::<batchweave_store::StoreError>() && !e.is::<remote::Changed>()
            });
        if self.codec == Codec::Plain || !(content || zstd) {
            return Err(self.unreadable(why));
        }
        Ok(self.codec.reason(&why, &self.head, self.decoder_memory()))
    }

    fn decoder_memory(&self) -> DecoderMemory {
        DecoderMemory {
            most: self.memory,
            file: self.file.pin.size,
        }
    }
}
