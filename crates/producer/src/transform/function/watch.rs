//! Ends worker processes that take too long over a document or too much memory.

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Interval between two looks at the processes.
const EVERY: Duration = Duration::from_millis(100);

/// The reason why a process was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    TimedOut,
    TooLarge,
}

/// A process that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    pid: Pid,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The end of its time for the document that it is at.
    deadline: Option<Instant>,
    verdict: Option<Verdict>,
    /// It is waited for, and its number may be another's.
    gone: bool,
}

impl Watched {
    pub(super) fn new(pid: Pid) -> Self {
        Self {
            pid,
            state: Mutex::default(),
        }
    }

    /// Gives the process `time` from now on; with `None` it has no work.
    pub(super) fn allow(&self, time: Option<Duration>) {
        self.state().deadline = time.and_then(|time| Instant::now().checked_add(time));
    }

    /// Ends the process and all that it started; to be called before it is waited for.
    pub(super) fn end(&self) -> Option<Verdict> {
        let mut state = self.state();
        if !state.gone {
            // It may have ended already.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        state.gone = true;
        state.verdict
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, now: Instant, memory: u64) {
        let mut state = self.state();
        let Some(deadline) = state.deadline.filter(|_| !state.gone) else {
            return;
        };
        let verdict = if now >= deadline {
            Verdict::TimedOut
        } else if resident_bytes(self.pid).is_some_and(|bytes| bytes > memory) {
            Verdict::TooLarge
        } else {
            return;
        };
        state.verdict.get_or_insert(verdict);
        let _ = kill_process_group(self.pid, Signal::KILL);
    }
}

/// Returns the memory that a process has in use in bytes.
fn resident_bytes(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// All processes of a pool.
#[derive(Debug, Default)]
pub(super) struct WatchList(Mutex<Vec<Weak<Watched>>>);

impl WatchList {
    pub(super) fn add(&self, watched: &Arc<Watched>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(watched));
    }

    fn all(&self) -> Vec<Arc<Watched>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Watches the processes until the pool is gone.
pub(super) fn watch(list: &Weak<WatchList>, memory: u64) {
    while let Some(list) = list.upgrade() {
        for one in list.all() {
            one.look(Instant::now(), memory);
        }
        drop(list);
        std::thread::sleep(EVERY);
    }
}
