//! The second stage: a pool of threads makes documents of chunks of units. Results keep the order of the chunks,
//! whichever thread is done first: each chunk travels with the sending half of a channel for its result, and the
//! next stage receives from the other halves in order.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use batchweave_core::order::Position;
use batchweave_daemon::panics::guard;
use tokio::sync::oneshot;

use crate::error::RunError;
use crate::metrics::FunctionMetrics;
use crate::packing::Document;
use crate::pipeline::read::Chunk;
use crate::sources::{DocumentError, Format, Inputs, PinnedFile, Reason, Unit};
use crate::transform::DocumentTransform;
use crate::worker::WorkerError;

/// The result of one unit; blank lines give none.
#[derive(Debug)]
pub enum Tokenized {
    Document {
        document: Document,
        /// Size of its text or arrays in bytes.
        bytes: u64,
        /// Its place in the order of its source; the start for `[source]`.
        at: Position,
    },
    /// A bad document and the pass in which it was read.
    Bad {
        pass: u64,
        error: DocumentError,
        at: Position,
    },
}

/// The results of one chunk, in order.
pub type ChunkResults = Result<Vec<Tokenized>, RunError>;

struct Job {
    chunk: Chunk,
    done: oneshot::Sender<ChunkResults>,
}

/// The work of the tokenizing threads, which they share.
pub struct ChunkTokenizer {
    pub transform: Arc<DocumentTransform>,
    pub inputs: Arc<Inputs>,
    /// The configured format and JSON field of each source.
    pub sources: Vec<(Format, String)>,
    /// The counters of documents that a function left out.
    pub metrics: Option<FunctionMetrics>,
}

/// The unit's surroundings: its pass and place in the order, and how its source is read.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    pass: u64,
    at: Position,
    file: Option<&'a PinnedFile>,
    /// The format of the file, and that of the unit, which a function may have changed.
    formats: (Format, Format),
    field: &'a str,
}

/// A pool of tokenizing threads, which end when it is dropped.
pub struct TokenizerPool(SyncSender<Job>);

impl TokenizerPool {
    /// Starts a pool of `threads` threads.
    pub fn start(threads: usize, work: ChunkTokenizer) -> Result<Self, RunError> {
        let (send, receive) = sync_channel(threads);
        let receive = Arc::new(Mutex::new(receive));
        let work = Arc::new(work);
        for n in 0..threads {
            let (receive, work) = (receive.clone(), work.clone());
            std::thread::Builder::new()
                .name(format!("tokenize-{n}"))
                .spawn(move || serve(&receive, &work))
                .map_err(|why| WorkerError::NoThread {
                    name: "tokenize",
                    why,
                })?;
        }
        Ok(Self(send))
    }

    /// Submits a chunk and returns the channel of its results. Blocks while all threads are busy; `None` when the
    /// threads are gone.
    pub fn submit(&self, chunk: Chunk) -> Option<oneshot::Receiver<ChunkResults>> {
        let (done, result) = oneshot::channel();
        self.0.send(Job { chunk, done }).ok().map(|()| result)
    }
}

fn serve(receive: &Mutex<Receiver<Job>>, work: &ChunkTokenizer) {
    loop {
        // The lock is held while waiting; other idle threads would only wait too.
        let job = receive
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(Job { chunk, done }) = job else { return };
        // While the daemon stops, the receiver may be gone.
        let _ = done.send(work.chunk(chunk));
    }
}

impl ChunkTokenizer {
    fn chunk(&self, chunk: Chunk) -> ChunkResults {
        let inputs = self.inputs.now();
        let (configured, field) = &self.sources[chunk.source];
        let mut last: Option<(u32, Format)> = None;
        let format_of = |unit: &Unit| {
            let number = unit.place.file;
            // Neighbours are often from one file.
            let format = if let Some((_, format)) = last.filter(|(file, _)| *file == number) {
                format
            } else {
                let file = inputs.files.get(number as usize);
                configured.for_file(file.map_or("", |file| &file.pin.name))
            };
            last = Some((number, format));
            format
        };
        let formats: Vec<Format> = chunk.units.iter().map(format_of).collect();
        let read = formats.iter().copied().zip(chunk.units).collect();
        let made = self.transform.prepare(field, read);
        if let Some(metrics) = &self.metrics {
            metrics.dropped.inc_by(made.dropped);
            metrics.deaths.inc_by(made.deaths);
        }
        let positions = chunk.positions.into_iter().map(Some);
        let positions = positions.chain(std::iter::repeat(None));
        let units = made.units.into_iter().zip(formats).zip(positions);
        units
            .filter_map(|((unit, written_as), at)| {
                let (read_as, unit) = unit?;
                let around = Surroundings {
                    pass: chunk.pass,
                    at: at.unwrap_or_default(),
                    file: inputs
                        .files
                        .get(unit.place.file as usize)
                        .map(|file| &file.pin),
                    formats: (written_as, read_as),
                    field,
                };
                self.unit(unit, around).transpose()
            })
            .collect()
    }

    fn unit(&self, unit: Unit, around: Surroundings) -> Result<Option<Tokenized>, RunError> {
        let (place, pass, at) = (unit.place, around.pass, around.at);
        let bad = |reason| match around.file {
            Some(file) => DocumentError::in_file(file, around.formats.0, place.unit, reason),
            None => DocumentError::new("", around.formats.0, place.unit, reason),
        };
        let transform = || {
            self.transform
                .transform(around.formats.1, around.field, unit)
        };
        let transformed = match guard(transform) {
            Ok(transformed) => transformed,
            Err(panic) => {
                let panic = panic.to_string();
                let error = bad(Reason::Panicked { panic });
                if !self.transform.is_sound() {
                    return Err(RunError::TokenizerBroken(error));
                }
                return Ok(Some(Tokenized::Bad { pass, error, at }));
            }
        };
        Ok(match transformed {
            Ok(None) => None,
            Ok(Some(made)) => {
                let bytes = made.bytes;
                let document = Document {
                    pass,
                    place,
                    content: made.content,
                    columns: made.columns,
                    arrays: made.arrays,
                };
                Some(Tokenized::Document {
                    document,
                    bytes,
                    at,
                })
            }
            // Later documents would fail too, so none is left out for this.
            Err(reason) if reason.is_of_program() => {
                return Err(RunError::NoProcess(bad(reason)));
            }
            Err(reason) => {
                let error = bad(reason);
                Some(Tokenized::Bad { pass, error, at })
            }
        })
    }
}
