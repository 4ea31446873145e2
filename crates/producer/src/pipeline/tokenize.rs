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
use crate::packing::{Document, Within};
use crate::pipeline::read::Chunk;
use crate::sources::{DocumentError, Format, Inputs, PinnedFile, Place, Reason, Unit};
use crate::transform::function::Prepared;
use crate::transform::json::Beyond;
use crate::transform::{DocumentTransform, Transformed};
use crate::worker::WorkerError;

/// The result of one unit; blank lines give none.
#[derive(Debug)]
pub enum Tokenized {
    Document {
        document: Document,
        /// Further documents that a function made of the unit.
        more: Vec<Document>,
        /// Size of their text or arrays in bytes.
        bytes: u64,
        /// The position behind it in the order of its source.
        after: Position,
        /// The parts of its JSON beyond the standard, with its place for people.
        beyond: Option<Box<(Beyond, String)>>,
        /// Number of tokens that were cut off, because a bin holds no more, with its place for people.
        truncated: Option<Box<(u64, String)>>,
    },
    /// A bad document and the pass in which it was read.
    Bad {
        pass: u64,
        error: DocumentError,
        after: Position,
    },
}

impl Tokenized {
    /// Returns the documents in order; none of a bad one.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        let (first, more) = match self {
            Self::Document { document, more, .. } => (Some(document), &more[..]),
            Self::Bad { .. } => (None, &[][..]),
        };
        first.into_iter().chain(more)
    }

    /// Returns the pass of its source.
    pub(super) fn pass(&self) -> u64 {
        match self {
            Self::Document { document, .. } => document.pass,
            Self::Bad { pass, .. } => *pass,
        }
    }
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

/// The unit's surroundings: its pass, the position behind it, and how its source is read.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    pass: u64,
    after: Position,
    file: Option<&'a PinnedFile>,
    /// The number of its source, and the configured format of that.
    source: usize,
    format: Format,
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
        // Each unit has a position: one without it would be left out without a word.
        if chunk.after.len() != chunk.units.len() {
            return Err(RunError::lost("read", "it sent units without positions"));
        }
        let inputs = self.inputs.now();
        let (configured, field) = &self.sources[chunk.source];
        let made = self.transform.prepare(field, chunk.units);
        if let Some(metrics) = &self.metrics {
            metrics.dropped.inc_by(made.dropped);
            metrics.deaths.inc_by(made.deaths);
        }
        let mut results = Vec::with_capacity(made.units.len());
        for (unit, after) in made.units.into_iter().zip(chunk.after) {
            let Some(unit) = unit else {
                continue;
            };
            let around = Surroundings {
                pass: chunk.pass,
                after,
                file: inputs
                    .files
                    .get(unit.unit.place.file as usize)
                    .map(|file| &file.pin),
                source: chunk.source,
                format: *configured,
                field,
            };
            results.extend(self.unit(unit, around)?);
        }
        Ok(results)
    }

    /// Returns the result of a unit. When one of several documents of it is bad, the unit is.
    fn unit(&self, unit: Prepared, around: Surroundings) -> Result<Option<Tokenized>, RunError> {
        let pass = around.pass;
        let after = around.after;
        let place = unit.unit.place;
        let of = 1 + unit.more.len();
        let mut within = Within::default();
        let mut first = None;
        let mut more = Vec::new();
        let mut bytes = 0;
        let mut beyond = Beyond::default();
        let mut truncated = 0;
        for (number, unit) in (1..).zip(std::iter::once(unit.unit).chain(unit.more)) {
            let made = match self.transformed(unit, around)? {
                Ok(None) => continue,
                Ok(Some(made)) => made,
                Err(reason) => {
                    let error = around.bad(place, reason.of_several(number, of));
                    return Ok(Some(Tokenized::Bad { pass, error, after }));
                }
            };
            bytes += made.bytes;
            beyond.add(made.beyond);
            truncated += made.truncated;
            within.more = number < of;
            let items = made.content.items();
            let document = Document {
                pass,
                place,
                within,
                content: made.content,
                columns: self.transform.with_source(made.columns, around.source),
                arrays: made.arrays,
            };
            within.before += items;
            match first {
                None => first = Some(document),
                Some(_) => more.push(document),
            }
        }
        Ok(first.map(|document| Tokenized::Document {
            document,
            more,
            bytes,
            after,
            beyond: (!beyond.is_none()).then(|| Box::new((beyond, around.place(place)))),
            truncated: (truncated > 0).then(|| Box::new((truncated, around.place(place)))),
        }))
    }

    /// Returns the document in `unit`, or the reason why it is bad. Fails when later documents would fail too.
    fn transformed(
        &self,
        unit: Unit,
        around: Surroundings,
    ) -> Result<Result<Option<Transformed>, Reason>, RunError> {
        let place = unit.place;
        let transform = || self.transform.transform(around.field, unit);
        match guard(transform) {
            Ok(Err(reason)) if reason.is_of_program() => {
                Err(RunError::of_program(around.bad(place, reason)))
            }
            Ok(transformed) => Ok(transformed),
            Err(panic) => {
                let reason = Reason::Panicked {
                    panic: panic.to_string(),
                };
                if self.transform.is_sound() {
                    return Ok(Err(reason));
                }
                Err(RunError::TokenizerBroken(around.bad(place, reason)))
            }
        }
    }
}

impl Surroundings<'_> {
    /// Returns the place for people.
    fn place(self, place: Place) -> String {
        self.bad(place, Reason::Empty).place()
    }

    /// Returns the error for the unit at `place`.
    fn bad(self, place: Place, reason: Reason) -> DocumentError {
        match self.file {
            Some(file) => {
                let format = self.format.for_file(&file.name);
                DocumentError::in_file(file, format, place.unit, reason)
            }
            None => DocumentError::new("", self.format, place.unit, reason),
        }
    }
}
