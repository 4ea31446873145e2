//! Segments: only the daemon can change them, and no memory limit is exceeded.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};

use batchweave_arena::{ArenaError, MappedSegment, MemoryLimits, Segment};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};

const BYTES: u64 = 1 << 20;

fn copy_of_fd(segment: &Segment) -> OwnedFd {
    segment.as_fd().try_clone_to_owned().unwrap()
}

fn map_count() -> usize {
    fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .filter(|l| l.contains("memfd:flat"))
        .count()
}

#[test]
fn what_the_daemon_writes_a_rank_reads_in_place() {
    let segment = Segment::create("bytes", BYTES, &MemoryLimits::default()).unwrap();
    let mut frame = segment.reserve(64, 32).unwrap();
    let rank = MappedSegment::map(copy_of_fd(&segment), BYTES).unwrap();
    let view = rank.frame(64, 32).unwrap();
    assert_eq!(view.bytes(), [0; 32]);
    drop(view);
    frame.write_at(8, &7_u32.to_le_bytes()).unwrap();
    frame.as_mut_slice()[31] = 9;
    let view = rank.frame(64, 32).unwrap();
    drop(rank);
    assert_eq!(view.bytes(), frame.as_slice());
    assert_eq!(view.elements::<u32>(8, 1), Some(&[7_u32][..]));
    assert_eq!(view.elements::<u8>(31, 1), Some(&[9_u8][..]));
    assert_eq!(view.elements::<u32>(2, 1), None, "not aligned");
    assert_eq!(view.elements::<u32>(28, 2), None, "beyond the frame");
    assert_eq!(view.elements::<u64>(0, u64::MAX / 4), None, "no overflow");
}

#[test]
fn ranges_and_leases_are_checked() {
    let segment = Segment::create("leases", BYTES, &MemoryLimits::default()).unwrap();
    let rank = MappedSegment::map(copy_of_fd(&segment), BYTES).unwrap();
    for (offset, length) in [(BYTES, 1), (0, BYTES + 1), (u64::MAX, 2)] {
        assert!(matches!(
            segment.reserve(offset, length),
            Err(ArenaError::Range { .. })
        ));
        assert!(matches!(
            rank.frame(offset, length),
            Err(ArenaError::Range { .. })
        ));
    }
    assert!(matches!(
        segment.reserve(0, 0),
        Err(ArenaError::Range { .. })
    ));
    let mut middle = segment.reserve(128, 128).unwrap();
    for (offset, length) in [(128, 128), (0, 129), (255, 1), (192, 1000), (0, BYTES)] {
        let overlap = segment.reserve(offset, length);
        assert!(
            matches!(overlap, Err(ArenaError::Overlap { other: 128, .. })),
            "{offset} {length}"
        );
    }
    let (_before, _after) = (
        segment.reserve(0, 128).unwrap(),
        segment.reserve(256, 64).unwrap(),
    );
    assert!(middle.write_at(127, b"ab").is_err());
    assert!(middle.write_at(u64::MAX, b"ab").is_err());
    drop(middle);
    segment.reserve(128, 128).unwrap();
}

/// A memfd has mode 0777: another user once reopened one for writing and truncated it under the daemon.
/// Tests often run as root, which ignores permissions: the seals must hold.
#[test]
fn no_descriptor_can_write_truncate_or_grow() {
    let segment = Segment::create("sealed", BYTES, &MemoryLimits::default()).unwrap();
    segment.reserve(0, 4).unwrap().write_at(0, b"good").unwrap();
    let fd = copy_of_fd(&segment);
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
        0o400
    );

    let mut received = File::from(fd);
    assert!(
        received.write(b"bad").is_err(),
        "the descriptor is read-only"
    );
    assert!(received.set_len(0).is_err());
    let mut bytes = [0; 4];
    received.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"good");

    if let Ok(reopened) = OpenOptions::new().read(true).write(true).open(&path) {
        assert!(
            rustix::process::geteuid().is_root(),
            "only root may reopen it"
        );
        assert!(reopened.write_at(b"bad", 0).is_err(), "F_SEAL_FUTURE_WRITE");
        assert!(
            ftruncate(&reopened, 0).is_err(),
            "F_SEAL_SHRINK: else SIGBUS for all"
        );
        assert!(ftruncate(&reopened, BYTES * 2).is_err(), "F_SEAL_GROW");
        assert!(
            fcntl_add_seals(&reopened, SealFlags::WRITE).is_err(),
            "F_SEAL_SEAL"
        );
    }
    let seals = fcntl_get_seals(&segment).unwrap();
    assert!(
        seals.contains(
            SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
        )
    );
    segment.reserve(0, 4).unwrap().write_at(0, b"fine").unwrap();
}

/// A writable mapping of the same memory is refused too, for every process.
#[test]
fn no_second_writable_mapping() {
    let segment = Segment::create("mapping", BYTES, &MemoryLimits::default()).unwrap();
    let path = format!("/proc/self/fd/{}", segment.as_fd().as_raw_fd());
    let script = "import mmap, os, sys\n\
                  fd = os.open(sys.argv[1], os.O_RDWR)\n\
                  mmap.mmap(fd, 0)\n";
    // A process of its own, as an attacker would be; it opens our descriptor by our pid.
    let path = path.replace("self", &std::process::id().to_string());
    let output = std::process::Command::new("python3")
        .args(["-c", script, &path])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("PermissionError"), "{said}");
}

#[test]
fn a_descriptor_without_the_seals_is_refused() {
    let say = |fd: OwnedFd, bytes| MappedSegment::map(fd, bytes).err().unwrap().to_string();
    let bare = memfd_create("bare", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&bare, BYTES).unwrap();
    assert!(
        say(bare.try_clone().unwrap(), BYTES).contains("seals"),
        "it could shrink: SIGBUS"
    );
    fcntl_add_seals(&bare, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    assert!(
        say(bare, BYTES).contains("seals"),
        "somebody may still write"
    );
    let file = File::open("/proc/self/exe").unwrap();
    assert!(say(file.into(), BYTES).contains("not a memfd"));
    let segment = Segment::create("short", BYTES, &MemoryLimits::default()).unwrap();
    assert!(
        say(copy_of_fd(&segment), BYTES * 2).contains("the message says"),
        "reading past the end is SIGBUS"
    );
    assert!(say(copy_of_fd(&segment), 0).contains("the message says"));
}

#[test]
fn a_full_cgroup_is_an_error_with_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    fs::create_dir(dir.path().join("self")).unwrap();
    write("self/cgroup", "0::/\n");
    write("memory.max", "5000000\n");
    write("memory.current", "4500000\n");
    let limits = MemoryLimits::at(dir.path(), dir.path());
    Segment::create("fits", 400_000, &limits).unwrap();
    let error = Segment::create("full", BYTES, &limits)
        .err()
        .unwrap()
        .to_string();
    for part in [
        "1048576 bytes",
        "leaves 500000",
        "memory.max 5000000",
        "exit code 137",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert!(Segment::create("none", 0, &limits).is_err());
}

#[test]
fn mappings_and_descriptors_stay_flat() {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let round = || {
        let segment = Segment::create("flat", BYTES, &MemoryLimits::default()).unwrap();
        let rank = MappedSegment::map(copy_of_fd(&segment), BYTES).unwrap();
        let view = rank.frame(0, 64).unwrap();
        drop((segment, rank));
        assert_eq!(
            view.bytes(),
            [0; 64],
            "the frame outlives the daemon's mapping"
        );
    };
    round();
    let before = descriptors();
    (0..50).for_each(|_| round());
    assert_eq!(map_count(), 0);
    // Other tests of this binary run concurrently and hold a few descriptors of their own.
    assert!(descriptors() < before + 40, "{before} -> {}", descriptors());
}
