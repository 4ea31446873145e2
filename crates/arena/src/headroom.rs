//! The memory that may still be populated, by every visible enclosing cgroup and the machine.
//!
//! Populating beyond a cgroup's limit ends in SIGKILL, not in an error, so the limits are checked before.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ArenaError;

/// The kernel's files with the limits; tests use folders of their own.
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
    /// Bytes that may still be used.
    pub left: u64,
    /// The folder of the cgroup, or the meminfo file.
    pub place: String,
    pub detail: String,
}

impl MemoryLimits {
    /// Returns limits below these roots instead of `/proc` and `/sys/fs/cgroup`.
    pub fn at(proc: impl Into<PathBuf>, cgroup: impl Into<PathBuf>) -> Self {
        Self {
            proc: proc.into(),
            cgroup: cgroup.into(),
        }
    }

    /// Fails when fewer than `wanted` bytes are left.
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

    /// Returns the tightest of all readable limits; `None` where there is none.
    pub fn headroom(&self) -> Option<Headroom> {
        let groups = self.own_cgroups();
        let limits = groups.iter().filter_map(Group::headroom);
        limits.chain(self.machine()).min_by_key(|h| h.left)
    }

    /// Returns the smallest limit of the visible cgroups in bytes, for an automatic size of the arena.
    pub fn smallest_limit(&self) -> Option<u64> {
        self.own_cgroups().iter().filter_map(Group::limit).min()
    }

    /// Returns the machine's memory in bytes, where it can be read.
    pub fn machine_bytes(&self) -> Option<u64> {
        self.meminfo("MemTotal:").map(|kib| kib * 1024)
    }

    /// Reads a line of the meminfo file, in KiB.
    fn meminfo(&self, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.proc.join("meminfo")).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// Returns our cgroup of each version, and all enclosing ones.
    fn own_cgroups(&self) -> Vec<Group> {
        let Ok(text) = fs::read_to_string(self.proc.join("self/cgroup")) else {
            return Vec::new();
        };
        let own = text.lines().filter_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
            let (root, files) = match controllers {
                "" => (self.cgroup.clone(), &V2),
                some if some.split(',').any(|one| one == "memory") => {
                    (self.cgroup.join("memory"), &V1)
                }
                _ => return None,
            };
            // For a path that leaves the visible hierarchy ("/../.."), at least the root is checked.
            let leaves = path.split('/').any(|part| part == "..");
            let folder = root.join(if leaves { "" } else { path });
            let folders = folder.ancestors().take_while(|p| p.starts_with(&root));
            let groups = folders.map(|folder| Group {
                folder: folder.to_owned(),
                files,
            });
            Some(groups.collect::<Vec<_>>())
        });
        own.flatten().collect()
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

/// The files with limit, use and page cache in one version of cgroups.
#[derive(Debug)]
struct Files {
    limit: &'static str,
    used: &'static str,
    cache: &'static str,
}

const V2: Files = Files {
    limit: "memory.max",
    used: "memory.current",
    cache: "inactive_file ",
};
const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_inactive_file ",
};
/// Version 1 expresses "no limit" by a number beyond every machine.
const NO_LIMIT: u64 = 1 << 62;

struct Group {
    folder: PathBuf,
    files: &'static Files,
}

impl Group {
    fn limit(&self) -> Option<u64> {
        number(&self.folder.join(self.files.limit)).filter(|limit| *limit < NO_LIMIT)
    }

    /// Returns the memory left; clean page cache counts as free, because the kernel drops it first.
    fn headroom(&self) -> Option<Headroom> {
        let (limit, files) = (self.limit()?, self.files);
        let used = number(&self.folder.join(files.used))?;
        let cache = self.cache().unwrap_or(0).min(used);
        Some(Headroom {
            left: limit.saturating_sub(used - cache),
            place: self.folder.display().to_string(),
            detail: format!(
                "{} {limit}, {} {used}, of it page cache {cache}",
                files.limit, files.used
            ),
        })
    }

    fn cache(&self) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        let found = |line: &str| line.strip_prefix(self.files.cache)?.trim().parse().ok();
        text.lines().find_map(found)
    }
}

/// Reads a file with one number; `None` for `max`.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
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

    /// As kernels of version 1 and container runtimes on them show it.
    #[test]
    fn limits_of_version_1_count_too() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(
            root,
            "proc/self/cgroup",
            "9:cpu,cpuacct:/a\n4:memory:/docker/box\n1:name=systemd:/x\n0::/\n",
        );
        let limits = MemoryLimits::at(root.join("proc"), root.join("cg"));
        // In the container its own group is the root that is visible.
        write(root, "cg/memory/memory.limit_in_bytes", "9000\n");
        write(root, "cg/memory/memory.usage_in_bytes", "6000\n");
        write(
            root,
            "cg/memory/memory.stat",
            "inactive_file 1\ntotal_inactive_file 500\n",
        );
        assert_eq!(limits.smallest_limit(), Some(9_000));
        let text = limits.check(3_501).unwrap_err().to_string();
        assert!(text.contains("memory.limit_in_bytes 9000"), "{text}");
        limits.check(3_500).unwrap();
        write(
            root,
            "cg/memory/docker/box/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(limits.smallest_limit(), Some(9_000));
        write(root, "cg/memory/docker/box/memory.limit_in_bytes", "700\n");
        assert_eq!(limits.smallest_limit(), Some(700));
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
