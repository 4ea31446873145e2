//! Threads for long work. A thread that cannot start and one that ends without a result are errors, so that a
//! lost reader is never taken for the end of the input.

use std::fmt::Display;
use std::io;
use std::mem::ManuallyDrop;
use std::thread::JoinHandle;

use batchweave_daemon::Exit;
use batchweave_daemon::panics::{Panic, guard};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A thread that could not start, or a thread or task that ended without its result.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The machine has no thread to spare.
    #[error(
        "cannot start the thread {name:?}: {why}; raise the limit on processes and threads (ulimit -u, TasksMax=, \
         pids.max), or free memory"
    )]
    NoThread { name: &'static str, why: io::Error },
    /// A thread or task ended without its result: a fault of the program.
    #[error(
        "the thread {name:?} was lost by a fault of the program ({why}); what was committed is whole, and a restart \
         continues from there. Please report it"
    )]
    Lost { name: &'static str, why: String },
}

impl WorkerError {
    /// Returns the error for a thread or task that ended without its result.
    pub(crate) fn lost(name: &'static str, why: impl Display) -> Self {
        Self::Lost {
            name,
            why: why.to_string(),
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NoThread { .. } => Exit::Failure,
            Self::Lost { .. } => Exit::Internal,
        }
    }
}

/// A running thread and the channel for its result.
pub(crate) struct Worker<T> {
    name: &'static str,
    result: oneshot::Receiver<Result<T, Panic>>,
    /// Never detached: glibc's `pthread_detach` may read memory of a thread that ends just then.
    thread: ManuallyDrop<JoinHandle<()>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts `work`, which may use the caller's runtime.
    pub(crate) fn start(
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self, WorkerError> {
        let (send, result) = oneshot::channel();
        let runtime = Handle::current();
        let work = move || {
            let _entered = runtime.enter();
            // While the daemon stops, the receiver may be gone.
            let _ = send.send(guard(work));
        };
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread
            .spawn(work)
            .map_err(|why| WorkerError::NoThread { name, why })?;
        Ok(Self {
            name,
            result,
            thread: ManuallyDrop::new(thread),
        })
    }

    /// Waits for the result.
    pub(crate) async fn join(self) -> Result<T, WorkerError> {
        let received = self.result.await;
        let result = received.map_err(|why| WorkerError::lost(self.name, why))?;
        // The thread has sent its result, so it is about to end.
        let _ = ManuallyDrop::into_inner(self.thread).join();
        result.map_err(|panic| WorkerError::lost(self.name, panic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lost_thread_is_an_error_with_its_name_and_reason() {
        let seven = Worker::start("seven", || 7).unwrap();
        assert_eq!(seven.join().await.unwrap(), 7);
        let lost = Worker::<()>::start("reader", || panic!("out of luck")).unwrap();
        let error = lost.join().await.unwrap_err();
        assert_eq!(error.exit(), Exit::Internal);
        let why = error.to_string();
        assert!(
            why.contains("reader") && why.contains("out of luck"),
            "{why}"
        );
    }
}
