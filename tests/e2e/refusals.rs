//! Errors that each daemon reports before it starts: all in one report, with the exit code of their
//! kind.

use std::path::Path;

use batchweave_tests::{Process, eventually};

use crate::scene::MINUTE;

const CONFIG: Option<i32> = Some(64);

/// Runs a daemon on an invalid configuration. Returns its exit code and its output.
fn refused(daemon: &str, folder: &Path, config: &str) -> (Option<i32>, String) {
    let path = folder.join(format!("{daemon}.toml"));
    std::fs::write(&path, config).unwrap();
    let log = folder.join(format!("{daemon}.log"));
    let args = ["--config", &path.display().to_string()];
    let code = Process::start(daemon, &args, &[], &log).wait(MINUTE);
    (code, std::fs::read_to_string(log).unwrap())
}

#[test]
fn a_configuration_is_refused_with_all_its_problems_and_their_places() {
    let folder = tempfile::tempdir().unwrap();
    for (daemon, table, own) in [
        (
            "batchweave-producer",
            "[commit]\nlinger = \"1 apple\"\n",
            "commit.linger",
        ),
        (
            "batchweave-consumer",
            "[arena]\nbytes = \"1 apple\"\n",
            "arena.bytes",
        ),
    ] {
        let config = format!("[store]\nurll = \"file:///x\"\n{table}[log]\nlevel = \"a=b=c\"\n");
        let (code, output) = refused(daemon, folder.path(), &config);
        assert_eq!(code, CONFIG, "{output}");
        for part in [
            format!("{daemon}.toml:2:"),
            "store.url".to_owned(),
            format!("{daemon}.toml:4:"),
            own.to_owned(),
            format!("{daemon}.toml:6:"),
            "log.level".to_owned(),
        ] {
            assert!(output.contains(&part), "{part} in {output}");
        }
    }
}

#[test]
fn a_folder_that_is_not_there_is_named_and_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let config = format!(
        "[store]\nurl = \"file://{}\"\n[socket]\npath = \"{}\"\n[admin]\nlisten = \"off\"\n",
        nowhere.display(),
        folder.path().join("s.sock").display(),
    );
    let (path, log) = (folder.path().join("c.toml"), folder.path().join("c.log"));
    std::fs::write(&path, config).unwrap();
    let args = ["--config", &path.display().to_string()];
    let mut daemon = Process::start("batchweave-consumer", &args, &[], &log);
    let text = || std::fs::read_to_string(&log).unwrap();
    eventually("the daemon names the folder", || {
        text().contains("waiting for the stream")
    });
    for part in ["nowhere yet: a producer creates it", "correct store.url"] {
        assert!(text().contains(part), "{part} in {}", text());
    }
    daemon.signal("TERM");
    assert_eq!(daemon.wait(MINUTE), Some(0), "{}", text());
}
