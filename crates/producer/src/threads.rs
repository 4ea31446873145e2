//! Threads for long work. One that can't be started is an error, and so is one that is lost: nothing may
//! take its end for the end of the input.

use std::mem::ManuallyDrop;
use std::thread::JoinHandle;

use batchweave_daemon::panics::{Panic, guard};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::RunError;

/// A thread and its result.
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
    ) -> Result<Self, RunError> {
        let (send, result) = oneshot::channel();
        let runtime = Handle::current();
        let work = move || {
            let _entered = runtime.enter();
            // When the daemon is stopping, the result is not waited for.
            let _ = send.send(guard(work));
        };
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread
            .spawn(work)
            .map_err(|why| RunError::NoThread { name, why })?;
        Ok(Self {
            name,
            result,
            thread: ManuallyDrop::new(thread),
        })
    }

    /// Waits for the result.
    pub(crate) async fn join(self) -> Result<T, RunError> {
        let result = self.result.await;
        let result = result.map_err(|why| RunError::lost(self.name, why))?;
        // It has sent its result, so it ends now.
        let _ = ManuallyDrop::into_inner(self.thread).join();
        result.map_err(|panic| RunError::lost(self.name, panic))
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
        let why = lost.join().await.unwrap_err();
        assert_eq!(why.exit(), batchweave_daemon::Exit::Internal);
        let why = why.to_string();
        assert!(
            why.contains("reader") && why.contains("out of luck"),
            "{why}"
        );
    }
}
