//! Sizes against made-up machines and cgroups.

use batchweave_daemon::config::ByteSize;

use super::*;

const MIB: u64 = 1 << 20;

fn table(bytes: u64) -> ArenaTable {
    ArenaTable {
        bytes: ByteSize(bytes),
        segment_bytes: ByteSize::mib(1),
        ..ArenaTable::default()
    }
}

/// A machine and a cgroup with memory in MiB.
fn within(machine: u64, cgroup: Option<u64>, table: &ArenaTable) -> Result<SegmentMaker, String> {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
    std::fs::create_dir(dir.path().join("self")).unwrap();
    write("self/cgroup", "0::/\n".to_owned());
    write("meminfo", format!("MemTotal: {} kB\n", machine * 1024));
    write("memory.current", "0\n".to_owned());
    let max = cgroup.map_or("max".to_owned(), |mib| (mib * MIB).to_string());
    write("memory.max", max);
    SegmentMaker::within(MemoryLimits::at(dir.path(), dir.path()), table)
}

#[test]
fn an_arena_beyond_the_machine_is_refused_with_the_sizes() {
    let why = SegmentMaker::new(&table(1 << 50)).expect_err("a pebibyte");
    assert!(
        why.contains("1125899906842624 bytes are more than"),
        "{why}"
    );
    assert!(SegmentMaker::new(&table(MIB)).is_ok());
}

#[test]
fn an_arena_beyond_the_cgroup_is_refused_with_the_sizes() {
    assert!(within(100, Some(5), &table(5 * MIB)).is_ok());
    assert_eq!(
        within(100, Some(5), &table(5 * MIB + 1)).expect_err("one byte too many"),
        "5242881 bytes are more than the cgroup's memory limit of 5242880"
    );
}

/// After a restart two arenas are charged: twice the size must fit, with room for the daemon.
#[test]
fn an_automatic_size_fits_twice() {
    let bytes = |machine, cgroup| within(machine, cgroup, &table(0)).map(|m| m.bytes());
    assert_eq!(bytes(1000, Some(200)), Ok(90 * MIB), "45 % of the cgroup");
    assert_eq!(bytes(1000, None), Ok(250 * MIB), "25 % of the machine");
    assert_eq!(bytes(1000, Some(900)), Ok(250 * MIB), "the smaller");
    let why = bytes(1000, Some(2)).expect_err("not one segment");
    for part in [
        "943695 bytes",
        "one segment of 1048576",
        "arena.segment_bytes",
    ] {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn a_memory_node_that_is_not_there_is_refused_and_one_that_is_taken() {
    let mut table_on_node = table(MIB);
    table_on_node.numa_node = 1000;
    let why = check_node(&table_on_node).expect_err("no such node");
    assert!(
        why.contains("1000: this machine has memory on node"),
        "{why}"
    );
    table_on_node.numa_node = i64::from(memory_nodes()[0]);
    check_node(&table_on_node).unwrap();
    let maker = SegmentMaker::new(&table_on_node).unwrap();
    match maker.create() {
        Ok(segment) => assert_eq!(segment.bytes(), MIB),
        // Containers forbid the call where they lack SYS_NICE.
        Err(why) => assert!(why.to_string().contains("mbind"), "{why}"),
    }
}
