//! How much memory may still be populated: every visible cgroup above us, and the machine.
//!
//! Populating beyond a cgroup's limit is SIGKILL, not an error, so it is compared before.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ArenaError;

/// Where the kernel tells the limits; tests give folders of their own.
#[derive(Debug, Clone)]
pub struct MemoryLimits {
    proc: PathBuf,
    cgroup: PathBuf,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self::at("/proc", "/sys/fs/cgroup")
    }
}

/// The tightest limit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headroom {
    /// Bytes that may still be used there.
    pub left: u64,
    /// The cgroup's folder, or the meminfo file.
    pub place: String,
    /// The numbers read.
    pub detail: String,
}

impl MemoryLimits {
    /// Limits below these roots instead of `/proc` and `/sys/fs/cgroup`.
    pub fn at(proc: impl Into<PathBuf>, cgroup: impl Into<PathBuf>) -> Self {
        Self {
            proc: proc.into(),
            cgroup: cgroup.into(),
        }
    }

    /// An error when `wanted` bytes are more than what is left.
    pub fn check(&self, wanted: u64) -> Result<(), ArenaError> {
        match self.headroom() {
            Some(h) if h.left < wanted => Err(ArenaError::NoMemory {
                wanted,
                left: h.left,
                place: h.place,
                detail: h.detail,
            }),
            _ => Ok(()),
        }
    }

    /// The tightest of all limits that can be read; `None` where nothing can.
    pub fn headroom(&self) -> Option<Headroom> {
        let groups = self.own_cgroups();
        let limits = groups.iter().filter_map(|folder| cgroup_headroom(folder));
        limits.chain(self.machine()).min_by_key(|h| h.left)
    }

    /// The smallest `memory.max` of the visible cgroups, for an automatic size of the arena.
    pub fn smallest_limit(&self) -> Option<u64> {
        self.own_cgroups()
            .iter()
            .filter_map(|folder| number(&folder.join("memory.max")))
            .min()
    }

    /// The machine's memory; `None` where the kernel does not say.
    pub fn machine_bytes(&self) -> Option<u64> {
        self.meminfo("MemTotal:").map(|kib| kib * 1024)
    }

    /// A line of the meminfo file, in KiB.
    fn meminfo(&self, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.proc.join("meminfo")).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// Our own cgroup (version 2) and all above it.
    fn own_cgroups(&self) -> Vec<PathBuf> {
        let Ok(text) = fs::read_to_string(self.proc.join("self/cgroup")) else {
            return Vec::new();
        };
        let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
            return Vec::new();
        };
        // A path that leaves the visible hierarchy ("/../..") still has the root to look at.
        let own = if own.split('/').any(|part| part == "..") {
            ""
        } else {
            own
        };
        let own = self.cgroup.join(own);
        own.ancestors()
            .take_while(|p| p.starts_with(&self.cgroup))
            .map(Path::to_owned)
            .collect()
    }

    fn machine(&self) -> Option<Headroom> {
        let kib = self.meminfo("MemAvailable:")?;
        let place = self.proc.join("meminfo").display().to_string();
        Some(Headroom {
            left: kib * 1024,
            place,
            detail: format!("MemAvailable {kib} kB"),
        })
    }
}

/// What is left in one cgroup; clean page cache counts as free, since the kernel drops it first.
fn cgroup_headroom(folder: &Path) -> Option<Headroom> {
    let max = number(&folder.join("memory.max"))?;
    let current = number(&folder.join("memory.current"))?;
    let cache = inactive_file(folder).unwrap_or(0).min(current);
    Some(Headroom {
        left: max.saturating_sub(current - cache),
        place: folder.display().to_string(),
        detail: format!("memory.max {max}, memory.current {current}, of it page cache {cache}"),
    })
}

/// A file with one number; `max` is none.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn inactive_file(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("memory.stat")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_ancestor_counts() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, "proc/self/cgroup", "1:name=systemd:/x\n0::/pod/box\n");
        write(
            root,
            "proc/meminfo",
            "MemFree: 1 kB\nMemAvailable:   900 kB\n",
        );
        write(root, "cg/pod/box/memory.max", "max\n");
        write(root, "cg/pod/box/memory.current", "5000\n");
        write(root, "cg/pod/memory.max", "10000\n");
        write(root, "cg/pod/memory.current", "7000\n");
        write(root, "cg/pod/memory.stat", "anon 1\ninactive_file 1000\n");
        let limits = MemoryLimits::at(root.join("proc"), root.join("cg"));
        let tightest = limits.headroom().unwrap();
        assert_eq!(tightest.left, 4000);
        assert!(tightest.place.ends_with("cg/pod"), "{tightest:?}");
        assert_eq!(limits.smallest_limit(), Some(10_000));
        limits.check(4000).unwrap();
        let text = limits.check(4001).unwrap_err().to_string();
        assert!(
            text.contains("4001 bytes") && text.contains("memory.max 10000"),
            "{text}"
        );
        write(root, "proc/meminfo", "MemAvailable: 3 kB\n");
        assert!(
            limits
                .check(4000)
                .unwrap_err()
                .to_string()
                .contains("meminfo")
        );
    }

    #[test]
    fn what_can_not_be_read_is_no_limit() {
        let dir = tempfile::tempdir().unwrap();
        let limits = MemoryLimits::at(dir.path(), dir.path());
        assert_eq!(limits.headroom(), None);
        limits.check(u64::MAX).unwrap();
        write(dir.path(), "self/cgroup", "0::/../../other\n");
        write(dir.path(), "memory.max", "100\n");
        write(dir.path(), "memory.current", "300\n");
        assert_eq!(
            limits.headroom().unwrap().left,
            0,
            "the visible root, already above its limit"
        );
    }
}
