//! Errors that each daemon reports before it starts: all in one report, with the exit code of their
//! kind.

use std::path::Path;

use batchweave_tests::Process;

use crate::scene::MINUTE;

const CONFIG: Option<i32> = Some(64);
const STORE_UNAVAILABLE: Option<i32> = Some(69);

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
fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let config = format!(
        "[store]\nurl = \"file://{}\"\n[socket]\npath = \"{}\"\n[admin]\nlisten = \"off\"\n",
        nowhere.display(),
        folder.path().join("s.sock").display(),
    );
    let (code, output) = refused("batchweave-consumer", folder.path(), &config);
    assert_eq!(code, STORE_UNAVAILABLE, "{output}");
    for part in ["nowhere", "create the bucket or folder"] {
        assert!(output.contains(part), "{part} in {output}");
    }
}
