//! The second stage: a pool of threads makes documents of chunks of units. Results keep the order of the chunks,
//! whichever thread is done first: each chunk travels with the sending half of a channel for its result, and the
//! next stage receives from the other halves in order.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use batchweave_daemon::panics::guard;
use tokio::sync::oneshot;

use crate::error::RunError;
use crate::packing::Document;
use crate::pipeline::read::Chunk;
use crate::sources::{DocumentError, Format, Inputs, Reason, Unit};
use crate::transform::DocumentTransform;
use crate::worker::WorkerError;

/// The result of one unit; blank lines give none.
#[derive(Debug)]
pub enum Tokenized {
    Document {
        document: Document,
        /// Size of its text or arrays in bytes.
        bytes: u64,
    },
    /// A bad document and the pass in which it was read.
    Bad { pass: u64, error: DocumentError },
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
    /// The configured format of the files.
    pub format: Format,
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
        let pass = chunk.pass;
        let inputs = self.inputs.now();
        // All units of a chunk are from one file.
        let file = chunk.units.first().map_or(0, |unit| unit.place.file);
        let file = inputs.files.get(file as usize);
        let file = file.map_or("", |file| &file.pin.name);
        let from = (file, self.format.for_file(file));
        let units = chunk.units.into_iter();
        units
            .filter_map(|unit| self.unit(pass, unit, from).transpose())
            .collect()
    }

    fn unit(
        &self,
        pass: u64,
        unit: Unit,
        (file, format): (&str, Format),
    ) -> Result<Option<Tokenized>, RunError> {
        let place = unit.place;
        let at = |reason| DocumentError::new(file, format, place.unit, reason);
        let transformed = match guard(|| self.transform.transform(format, unit)) {
            Ok(transformed) => transformed,
            Err(panic) => {
                let panic = panic.to_string();
                let bad = at(Reason::Panicked { panic });
                if !self.transform.is_sound() {
                    return Err(RunError::TokenizerBroken(bad));
                }
                return Ok(Some(Tokenized::Bad { pass, error: bad }));
            }
        };
        Ok(match transformed {
            Ok(None) => None,
            Ok(Some((content, bytes))) => {
                let document = Document {
                    pass,
                    place,
                    content,
                };
                Some(Tokenized::Document { document, bytes })
            }
            // Later documents would fail too, so none is left out for this.
            Err(reason @ Reason::NoRenderer { .. }) => {
                return Err(RunError::NoRenderer(at(reason)));
            }
            Err(reason) => {
                let error = at(reason);
                Some(Tokenized::Bad { pass, error })
            }
        })
    }
}
