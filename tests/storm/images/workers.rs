//! Kills of the function's processes, the children of a producer.

use std::collections::BTreeSet;
use std::process::Command;

use rand::RngExt;
use rand::rngs::StdRng;

#[derive(Debug, Default)]
pub(super) struct Workers {
    /// Producers that lost one: a document that meets three deaths is a bad one, and the function causes one itself.
    bereft: BTreeSet<u32>,
    pub(super) killed: u64,
}

impl Workers {
    /// Kills one process of a producer, once in the producer's life. Returns false if there is none to kill.
    pub(super) fn kill_one(&mut self, producer: u32, rng: &mut StdRng) -> bool {
        let workers = children(producer);
        if workers.is_empty() || self.bereft.contains(&producer) {
            return false;
        }
        let worker = workers[rng.random_range(0..workers.len())].to_string();
        let killed = Command::new("kill").args(["-KILL", &worker]).output();
        if !killed.unwrap().status.success() {
            return false;
        }
        self.bereft.insert(producer);
        self.killed += 1;
        true
    }
}

fn children(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap();
    let ids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut found: Vec<u32> = ids.filter(|id| parent_of(*id) == Some(parent)).collect();
    found.sort_unstable();
    found
}

/// Returns the parent of a process; `None` if the process has ended.
fn parent_of(id: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name, in parentheses, may contain blanks. Behind it come the state and the parent.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z").then_some(parent)
}
