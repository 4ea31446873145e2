//! Another process can only read a segment by its descriptor, whatever user it runs as.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use batchweave_arena::{MappedSegment, MemoryLimits, Pages, Segment};

const BYTES: u64 = 1 << 20;
/// Any user that is not ours.
const OTHER_UID: u32 = 61_234;

/// Tries every attack on descriptor 0 and through the daemon's /proc; prints those that worked.
const ATTACKS: &str = r#"
import ctypes, fcntl, mmap, os, sys

libc = ctypes.CDLL(None, use_errno=True)
path = sys.argv[1]
worked = []

def attempt(name, action):
    try:
        action()
    except (OSError, ValueError, PermissionError, TypeError):
        return
    worked.append(name)

def check(result):
    if result in (-1, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "refused")

def writable(descriptor):
    mmap.mmap(descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

def protect(descriptor):
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    at = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    check(at)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    check(libc.mprotect(at, 4096, mmap.PROT_READ | mmap.PROT_WRITE))

def all_on(name, descriptor):
    attempt(name + " write", lambda: os.write(descriptor, b"bad"))
    attempt(name + " pwrite", lambda: os.pwrite(descriptor, b"bad", 0))
    attempt(name + " truncate", lambda: os.ftruncate(descriptor, 0))
    attempt(name + " grow", lambda: os.ftruncate(descriptor, 1 << 22))
    attempt(name + " punch", lambda: check(libc.fallocate(descriptor, 3, ctypes.c_long(0), ctypes.c_long(4096))))
    attempt(name + " map", lambda: writable(descriptor))
    attempt(name + " remap", lambda: protect(descriptor))
    attempt(name + " seal", lambda: fcntl.fcntl(descriptor, 1033, 0x8))

all_on("received", 0)
# Whoever owns the file may change its mode; that must not help.
try:
    os.fchmod(0, 0o777)
except OSError:
    pass
for place in ("/proc/self/fd/0", path):
    for mode in (os.O_RDWR, os.O_WRONLY):
        try:
            reopened = os.open(place, mode)
        except OSError:
            continue
        all_on(place + " reopened", reopened)
    try:
        os.truncate(place, 0)
        worked.append(place + " truncate by name")
    except OSError:
        pass
with mmap.mmap(0, 0, mmap.MAP_SHARED, mmap.PROT_READ) as shared:
    assert shared[:4] == b"good", shared[:4]
print(os.geteuid(), *worked, sep="|")
"#;

/// Runs the attacks as `uid` and returns the output; `None` where this process may not become that user.
fn attack(segment: &Segment, uid: Option<u32>) -> Option<String> {
    use std::os::fd::AsRawFd;
    let fd = segment.as_fd().try_clone_to_owned().unwrap();
    let ours = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        segment.as_fd().as_raw_fd()
    );
    let mut command = Command::new("python3");
    command.args(["-c", ATTACKS, &ours]).stdin(Stdio::from(fd));
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    match command.output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Err(why) if why.kind() == std::io::ErrorKind::PermissionDenied => None,
        Err(why) => panic!("{why}"),
    }
}

fn sealed(name: &str) -> std::sync::Arc<Segment> {
    let segment = Segment::create(name, BYTES, &MemoryLimits::default()).unwrap();
    segment.reserve(0, 4).unwrap().write_at(0, b"good").unwrap();
    segment
}

fn is_whole(segment: &std::sync::Arc<Segment>) {
    assert_eq!(segment.reserve(0, 4).unwrap().as_slice(), b"good");
    let fd = segment.as_fd().try_clone_to_owned().unwrap();
    let size = rustix::fs::fstat(&fd).unwrap().st_size;
    assert_eq!(u64::try_from(size), Ok(BYTES));
}

#[test]
fn the_same_user_can_only_read() {
    let segment = sealed("same-user");
    let own = batchweave_arena::own_uid();
    assert_eq!(attack(&segment, None), Some(own.to_string()));
    is_whole(&segment);
}

#[test]
fn another_user_can_only_read() {
    let segment = sealed("other-user");
    match attack(&segment, Some(OTHER_UID)) {
        Some(said) => assert_eq!(said, OTHER_UID.to_string()),
        None => {
            eprintln!("not tried as another user: this one may not become another (it is not root)")
        }
    }
    is_whole(&segment);
}

/// Returns the bytes of the mapping at `name` that huge pages back.
fn huge_bytes(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    let mut kib = 0;
    for line in text.lines() {
        if line
            .split_ascii_whitespace()
            .next()
            .is_some_and(|w| w.contains('-'))
        {
            inside = line.contains(name);
        } else if inside && let Some(rest) = line.strip_prefix("ShmemPmdMapped:") {
            kib += rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        }
    }
    kib * 1024
}

#[test]
fn segments_are_made_of_huge_pages_where_there_are_any() {
    let (bytes, limits) = (8 << 20, MemoryLimits::default());
    let segment =
        Segment::create_with("hugepages", bytes, &limits, Pages::HugeIfAny, None).unwrap();
    match segment.not_huge() {
        None => assert_eq!(huge_bytes("memfd:hugepages"), bytes),
        Some(why) => eprintln!("no huge pages here: {why}"),
    }
    segment.reserve(0, 4).unwrap().write_at(0, b"good").unwrap();
    let fd = segment.as_fd().try_clone_to_owned().unwrap();
    let rank = MappedSegment::map(fd, bytes).unwrap();
    assert_eq!(rank.frame(0, 4).unwrap().bytes(), b"good");
}

#[test]
fn reserved_huge_pages_that_are_not_there_are_an_error_with_the_size() {
    let (bytes, limits) = (1 << 40, MemoryLimits::default());
    let made = Segment::create_with("reserved", bytes, &limits, Pages::HugeReserved, None);
    let error = made.err().unwrap().to_string();
    assert!(error.contains("1099511627776 bytes"), "{error}");
}
