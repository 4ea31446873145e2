//! The shipped file and the contradictions.

use batchweave_daemon::config::{self, ByteSize};

use super::*;

const SHIPPED: &str = include_str!("../../../../config/consumer.toml");

#[test]
fn the_shipped_file_is_the_default_and_lists_every_key() {
    let mut shipped: ConsumerConfig = config::parse("config/consumer.toml", SHIPPED).unwrap();
    assert!(!shipped.store.url.is_empty());
    shipped.store.url.clear();
    assert_eq!(shipped, ConsumerConfig::default());
    assert_eq!(
        config::unlisted_keys::<ConsumerConfig>(SHIPPED),
        Vec::<String>::new()
    );
}

#[test]
fn a_job_to_open_needs_a_name() {
    let text = "[store]\nurl = \"file:///x\"\n[job]\nopen = true\ncheckpoints = \"rank0\"\n";
    let report = config::parse::<ConsumerConfig>("c.toml", text).expect_err("must be refused");
    let text = report.to_string();
    assert!(
        text.contains("job.open") && text.contains("needs job.name"),
        "{text}"
    );
}

#[test]
fn a_small_arena_is_one_segment() {
    let report = |arena: &str| {
        let text = format!("store.url = \"file:///x\"\n[arena]\n{arena}\n");
        config::parse::<ConsumerConfig>("c.toml", &text).map(|config| config.arena.segment())
    };
    assert_eq!(report("bytes = \"16MiB\"").unwrap(), ByteSize::mib(16));
    assert_eq!(report("bytes = \"1GiB\"").unwrap(), ByteSize::mib(64));
    assert_eq!(report("").unwrap(), ByteSize::mib(64));
    let why = report("bytes = \"16MiB\"\nsegment_bytes = \"32MiB\"").unwrap_err();
    let part = "32MiB is more than arena.bytes (16MiB): not one segment fits; lower it to that, or raise arena.bytes";
    assert!(why.to_string().contains(part), "{why}");
}

#[test]
fn contradictions_come_together() {
    let long = "x".repeat(110);
    let text = format!(
        "[arena]\nbytes = \"8MiB\"\nsegment_bytes = \"16MiB\"\n[socket]\npath = \"/{long}\"\nmode = \"rw\"\n[prefetch]\nbytes = \"9MiB\"\n[follow]\nstarved = \"3s\"\n[job]\nname = \"A b\"\nkeep = 0\nlease = \"1500ms\"\nprogress_steps = 0\n"
    );
    let report = config::parse::<ConsumerConfig>("c.toml", &text).expect_err("must be refused");
    let keys: Vec<&str> = report.problems.iter().map(|p| p.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "store.url",
            "arena.segment_bytes",
            "socket.path",
            "socket.mode",
            "prefetch.bytes",
            "follow.starved",
            "job.name",
            "job.keep",
            "job.lease",
            "job.progress_steps",
        ],
        "{report}"
    );
    assert!(
        report
            .to_string()
            .contains("is 111 bytes long; the system allows 107"),
        "{report}"
    );
}

#[test]
fn the_read_ahead_follows_the_arena() {
    let mib = |n: u64| n << 20;
    let bytes_of = |given: u64, arena: u64, actual: u64| {
        let prefetch = PrefetchTable {
            bytes: ByteSize::mib(given),
            ..PrefetchTable::default()
        };
        let arena = ArenaTable {
            bytes: ByteSize::mib(arena),
            ..ArenaTable::default()
        };
        prefetch.bytes_of(&arena, mib(actual))
    };
    assert_eq!(bytes_of(0, 256, 256), mib(128));
    assert_eq!(bytes_of(0, 8192, 8192), mib(4096));
    assert_eq!(bytes_of(0, 0, 16384), mib(512), "of an automatic arena");
    assert_eq!(bytes_of(0, 0, 300), mib(150));
    assert_eq!(bytes_of(200, 256, 256), mib(200), "as given");
    assert_eq!(bytes_of(4096, 0, 1024), mib(512));
    let small = "store.url = \"file:///x\"\narena.bytes = \"64MiB\"\n";
    assert!(config::parse::<ConsumerConfig>("c.toml", small).is_ok());
}
