//! Starts worker processes, and ends those that take too long over a document or too much memory.
//!
//! One thread does both, and lasts as long as the pool: a process ends with the thread that started it, by a signal of
//! the kernel. Time counts only while this thread runs, so that a program that was stopped calls no document slow.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::family::{Processes, end_marked};

/// Interval between two looks at the processes.
const EVERY: Duration = Duration::from_millis(100);
/// Most time that counts between two looks.
const COUNTED: Duration = Duration::from_millis(200);
/// A search for the children of the processes waits this many times as long as the last one took.
const SEARCH_PART: u32 = 20;

/// The reason why a process was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    TimedOut,
    TooLarge,
}

/// A command to start, and the channel for the process.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) command: Command,
    pub(super) reply: SyncSender<io::Result<Child>>,
}

/// A process that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    pid: Pid,
    /// The value of the variable that all have which it starts.
    mark: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The rest of its time for the document that it is at.
    left: Option<Duration>,
    /// The last look at it.
    seen: Instant,
    verdict: Option<Verdict>,
    /// It is waited for, and its number may be another's.
    gone: bool,
}

impl State {
    fn new(now: Instant) -> Self {
        Self {
            left: None,
            seen: now,
            verdict: None,
            gone: false,
        }
    }

    /// Counts the time since the last look; true when none is left.
    fn timed_out(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.seen).min(COUNTED);
        self.seen = now;
        self.left = self.left.map(|left| left.saturating_sub(passed));
        self.left == Some(Duration::ZERO)
    }
}

impl Watched {
    pub(super) fn new(pid: Pid, mark: String) -> Self {
        let state = Mutex::new(State::new(Instant::now()));
        Self { pid, mark, state }
    }

    /// Gives the process `time` from now on; with `None` it has no work.
    pub(super) fn allow(&self, time: Option<Duration>) {
        let mut state = self.state();
        state.left = time;
        state.seen = Instant::now();
    }

    /// Ends the process and all that it started; to be called before it is waited for.
    pub(super) fn end(&self) -> Option<Verdict> {
        let mut state = self.state();
        if !state.gone {
            // It may have ended already.
            let _ = kill_process_group(self.pid, Signal::KILL);
            end_marked(&self.mark);
        }
        state.gone = true;
        state.verdict
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, now: Instant, processes: Option<&Processes>, most: u64) {
        let mut state = self.state();
        if state.gone || state.left.is_none() {
            return;
        }
        let memory = processes.map_or(0, |processes| processes.memory(self.pid, most));
        let verdict = if state.timed_out(now) {
            Verdict::TimedOut
        } else if memory > most {
            Verdict::TooLarge
        } else {
            return;
        };
        state.verdict.get_or_insert(verdict);
        let _ = kill_process_group(self.pid, Signal::KILL);
    }

    fn works(&self) -> bool {
        let state = self.state();
        !state.gone && state.left.is_some()
    }
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

    fn at_work(&self) -> Vec<Arc<Watched>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let running = all.iter().filter_map(Weak::upgrade);
        running.filter(|one| one.works()).collect()
    }
}

/// Starts processes and watches them until the pool is gone, whose end `starts` has.
pub(super) fn watch(list: &WatchList, starts: &Receiver<Start>, memory: u64) {
    let mut next_look = Instant::now();
    let mut next_search = Instant::now();
    loop {
        let rest = next_look.saturating_duration_since(Instant::now());
        match starts.recv_timeout(rest) {
            Ok(Start { mut command, reply }) => {
                // The thread that asked waits for it.
                let _ = reply.send(command.spawn());
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if now < next_look {
            continue;
        }
        next_look = now + EVERY;
        let all = list.at_work();
        let due = !all.is_empty() && now >= next_search;
        let processes = due.then(Processes::now);
        if due {
            next_search = Instant::now() + now.elapsed() * SEARCH_PART;
        }
        for one in all {
            one.look(now, processes.as_ref(), memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_watcher_did_not_run_does_not_count() {
        let began = Instant::now();
        let mut state = State::new(began);
        state.left = Some(Duration::from_secs(1));
        assert!(!state.timed_out(began + Duration::from_hours(1)));
        let mut looks = 0;
        let mut now = began + Duration::from_hours(1);
        while !state.timed_out(now) {
            now += EVERY;
            looks += 1;
        }
        assert_eq!(looks, 8);
    }
}
