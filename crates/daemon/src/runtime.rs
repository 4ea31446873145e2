//! The runtime of a program, after its system limits were checked: below them it would fail at any place, and first
//! with a panic.

use std::pin::Pin;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::{Exit, Failure, panics};

/// Time for the runtime's threads to end after the work; idle ones take microseconds.
const THREADS_END: Duration = Duration::from_secs(1);
/// Open files that every program may have: a runtime needs 14 before it opens a connection.
const OPEN_FILES_LEAST: u64 = 64;

/// Runs the future of a program with this name to its exit code.
pub fn run_to_exit<F: Future<Output = Exit>>(name: &str, program: F) -> Exit {
    work(Box::pin(program)).unwrap_or_else(|failure| failure.report(name))
}

/// Runs `work` on a runtime of its own; fails when it panics. Boxed, because the runtime has several ways to drive a
/// future, and each would be compiled for the whole program.
pub(crate) fn work<T>(work: Pin<Box<dyn Future<Output = T> + '_>>) -> Result<T, Failure> {
    allow_open_files()?;
    let runtime = runtime()?;
    let ended = panics::guard(|| runtime.block_on(work)).map_err(|panic| {
        let text = format!("bug in the program: {panic}; please report it");
        Failure::new(text, Exit::Internal)
    });
    // Results of blocking work are no longer needed. Idle threads are joined, because glibc's
    // pthread_detach reads memory that is gone when the thread ends just then (observed: SIGSEGV).
    runtime.shutdown_timeout(THREADS_END);
    ended
}

/// Starts the runtime, which panics when it cannot start its threads.
fn runtime() -> Result<Runtime, Failure> {
    let build = || Builder::new_multi_thread().enable_all().build();
    let why = match panics::guard(build) {
        Ok(Ok(runtime)) => return Ok(runtime),
        Ok(Err(why)) => why.to_string(),
        Err(panic) => panic.to_string(),
    };
    let text = format!(
        "cannot start the threads of the runtime: {why}; raise the limit on processes and threads (ulimit -u, \
         TasksMax=, pids.max), or free memory"
    );
    Err(Failure::new(text, Exit::Failure))
}

/// Raises a limit on open files that is too low, as far as the system allows; fails if that is not enough.
fn allow_open_files() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    if !is_below(limit.current) {
        return Ok(());
    }
    if is_below(limit.maximum) {
        let most = limit.maximum.unwrap_or_default();
        let text = format!(
            "at most {most} open files are allowed, and {OPEN_FILES_LEAST} are needed; raise the limit (ulimit -Hn, \
             LimitNOFILE=)"
        );
        return Err(Failure::new(text, Exit::Failure));
    }
    let raised = Rlimit {
        current: Some(OPEN_FILES_LEAST),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|why| {
        let text = format!("cannot raise the limit on open files to {OPEN_FILES_LEAST}: {why}");
        Failure::new(text, Exit::Failure)
    })
}

/// Whether a limit is too low; none is not.
fn is_below(limit: Option<u64>) -> bool {
    limit.is_some_and(|files| files < OPEN_FILES_LEAST)
}
