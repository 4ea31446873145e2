//! The processes that a worker process started: their memory, and those that must end with it.
//!
//! They are found in /proc: by their group and their parents while the worker runs, and afterwards by a variable of its
//! environment, which they inherit also where they leave the group and lose their parents.

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable whose value names a worker process.
pub(super) const MARK: &str = "BATCHWEAVE_FUNCTION_PROCESS";
/// Most searches for the processes that a worker left: each may start others before its end.
const SEARCHES: usize = 5;

/// A process of the system.
#[derive(Debug, Clone, Copy)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    /// Number of pages in memory.
    pages: u64,
}

/// All processes at one time.
#[derive(Debug, Default)]
pub(super) struct Processes(Vec<Process>);

impl Processes {
    /// Looks at all processes of the system; those that end meanwhile are left out.
    pub(super) fn now() -> Self {
        Self(pids().filter_map(Process::read).collect())
    }

    /// Returns the memory in bytes that the worker and all that it started have in use. Pages that they share count once
    /// where the sum of all exceeds `most`.
    pub(super) fn memory(&self, worker: Pid, most: u64) -> u64 {
        let family = self.family(worker.as_raw_nonzero().get());
        let page = rustix::param::page_size() as u64;
        let resident = |one: &Process| one.pages * page;
        let sum = family.iter().map(resident).sum();
        if sum <= most || family.len() == 1 {
            return sum;
        }
        let own = |one: &Process| proportional(one.pid).unwrap_or_else(|| resident(one));
        family.iter().map(own).sum()
    }

    fn family(&self, worker: i32) -> Vec<Process> {
        let mut pids = HashSet::from([worker]);
        loop {
            let before = pids.len();
            for one in &self.0 {
                if one.group == worker || pids.contains(&one.parent) {
                    pids.insert(one.pid);
                }
            }
            if pids.len() == before {
                break;
            }
        }
        let of_family = |one: &&Process| pids.contains(&one.pid);
        self.0.iter().filter(of_family).copied().collect()
    }
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &text)
    }

    /// Parses a line of /proc/PID/stat: the name in parentheses may have any characters.
    fn parse(pid: i32, line: &str) -> Option<Self> {
        let (_, fields) = line.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        // The 24th of the line, where the group is the fifth.
        let pages = fields.nth(18)?.parse().ok()?;
        Some(Self {
            pid,
            parent,
            group,
            pages,
        })
    }
}

/// Ends all processes that have this value of the variable in the environment they began with.
pub(super) fn end_marked(value: &str) {
    let mark = format!("{MARK}={value}");
    for _ in 0..SEARCHES {
        let found = pids().filter(|&pid| has_mark(pid, &mark) && end(pid, &mark));
        if found.count() == 0 {
            return;
        }
    }
}

/// Ends a process if it still is the one with the mark: its number may have become another's.
fn end(pid: i32, mark: &str) -> bool {
    let Some(Ok(handle)) = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()))
    else {
        return false;
    };
    has_mark(pid, mark) && pidfd_send_signal(handle, Signal::KILL).is_ok()
}

fn has_mark(pid: i32, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|&byte| byte == 0);
    variables.any(|variable| variable == mark.as_bytes())
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name();
        std::str::from_utf8(name.as_bytes()).ok()?.parse().ok()
    })
}

/// Returns the bytes in use of a process, of shared pages its part.
fn proportional(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_process_is_parsed_also_when_its_name_has_parentheses_and_spaces() {
        let line = "42 (a) b (c) S 7 40 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 999 123456 321 18446744073709551615";
        let one = Process::parse(42, line).unwrap();
        assert_eq!((one.parent, one.group, one.pages), (7, 40, 321));
    }

    #[test]
    fn this_process_and_its_child_are_found_with_their_memory() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env(MARK, "a test's")
            .spawn()
            .unwrap();
        let own = Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap();
        let all = Processes::now();
        let pid = i32::try_from(child.id()).unwrap();
        let family = all.family(own.as_raw_nonzero().get());
        assert!(family.iter().any(|one| one.pid == pid));
        assert!(all.memory(own, u64::MAX) > 0);
        end_marked("a test's");
        assert!(!child.wait().unwrap().success());
    }
}
