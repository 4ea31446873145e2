//! The processes that a worker process started: their memory, and those that must end with it.
//!
//! They are found in /proc: by their group and their parents while the worker runs, and afterwards by a variable of its
//! environment, which they inherit also where they leave the group and lose their parents.

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable whose value names a worker process.
pub(super) const MARK: &str = "BATCHWEAVE_FUNCTION_PROCESS";
/// Most searches for the processes that a worker left: each may start others before its end.
const SEARCHES: usize = 5;
/// Longest wait for processes that are between two programs, and the interval between two looks at them.
const EXEC_WAIT: Duration = Duration::from_secs(5);
const EXEC_LOOK: Duration = Duration::from_millis(1);

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
        let (_, after_name) = line.rsplit_once(')')?;
        let mut fields = after_name.split_ascii_whitespace();
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
    let patience = Instant::now() + EXEC_WAIT;
    let mut searches = SEARCHES;
    while searches > 0 {
        let mut found = 0;
        let mut between = false;
        for pid in pids() {
            match Mark::of(pid, &mark) {
                Mark::Same if end(pid, &mark) => found += 1,
                Mark::NotYet => between = true,
                Mark::Same | Mark::Other => {}
            }
        }
        if found > 0 {
            searches -= 1;
        } else if between && Instant::now() < patience {
            thread::sleep(EXEC_LOOK);
        } else {
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
    Mark::of(pid, mark) == Mark::Same && pidfd_send_signal(handle, Signal::KILL).is_ok()
}

/// The answer of a process's environment to a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Same,
    Other,
    /// The process is in the middle of `execve`: it has left the old environment, and the new one can't be read yet.
    NotYet,
}

impl Mark {
    fn of(pid: i32, mark: &str) -> Self {
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else {
            return Self::Other;
        };
        let mut variables = environment.split(|&byte| byte == 0);
        if variables.any(|variable| variable == mark.as_bytes()) {
            return Self::Same;
        }
        let in_exec =
            || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|line| in_exec(&line));
        if environment.is_empty() && in_exec() {
            Self::NotYet
        } else {
            Self::Other
        }
    }
}

/// Whether a process has memory and no place of an environment yet, by its line of /proc/PID/stat. Threads of the kernel
/// and processes that ended have no memory; an empty environment has a place.
fn in_exec(line: &str) -> bool {
    let Some((_, fields)) = line.rsplit_once(')') else {
        return false;
    };
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // The 23rd and the 51st of the line, where the state is the third.
    let field = |number: usize| fields.get(number - 3).copied();
    field(23).is_some_and(|size| size != "0") && field(51) == Some("0")
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
    fn a_process_between_two_programs_is_told_from_one_without_variables() {
        let line = |size: &str, env_end: &str| {
            let zeros = ["0"; 18].join(" ");
            let more = ["0"; 27].join(" ");
            format!("42 (sh) R 1 {zeros} {size} {more} {env_end} 0")
        };
        assert_eq!(line("1", "2").split(' ').nth(22), Some("1"));
        assert_eq!(line("1", "2").split(' ').nth(50), Some("2"));
        assert!(in_exec(&line("4096", "0")));
        assert!(!in_exec(&line("4096", "140732400496601")));
        assert!(!in_exec(&line("0", "0")));
        assert!(!in_exec("42 (sh) R 1"));
        let mut bare = child().env_clear().spawn().unwrap();
        end_marked("nobody's");
        let pid = i32::try_from(bare.id()).unwrap();
        assert_eq!(Mark::of(pid, "x=y"), Mark::Other);
        bare.kill().unwrap();
        bare.wait().unwrap();
    }

    /// A child that has just begun may be between two programs, where nearly every one was missed.
    #[test]
    fn a_child_is_ended_at_once() {
        for _ in 0..20 {
            let mut child = child().env(MARK, "one of many").spawn().unwrap();
            end_marked("one of many");
            assert!(!child.wait().unwrap().success());
        }
    }

    #[test]
    fn this_process_and_its_child_are_found_with_their_memory() {
        let mut child = child().env(MARK, "a test's").spawn().unwrap();
        let own = Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap();
        let all = Processes::now();
        let pid = i32::try_from(child.id()).unwrap();
        let family = all.family(own.as_raw_nonzero().get());
        assert!(family.iter().any(|one| one.pid == pid));
        assert!(all.memory(own, u64::MAX) > 0);
        end_marked("a test's");
        assert!(!child.wait().unwrap().success());
    }

    fn child() -> std::process::Command {
        let mut command = std::process::Command::new("sleep");
        command.arg("600");
        command
    }
}
