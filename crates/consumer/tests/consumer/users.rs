//! Users that may connect: the daemon's own and those of `allow_uids`, by the credentials that the kernel reports.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Daemon, Stream, consumer};

const STRANGER: u32 = 61_235;
const GUEST: u32 = 61_236;
/// Sends garbage: the answer shows whether the daemon reads from the connection.
const NONSENSE: &str = "import socket, sys\n\
                        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
                        s.settimeout(20)\n\
                        s.connect(sys.argv[1])\n\
                        s.send(b'nonsense')\n\
                        print(s.recv(65536)[16:].decode())\n";

/// Returns the daemon's answer to a process of this user; `None` if the test may not become that user.
async fn answer(socket: &Path, uid: Option<u32>) -> Option<String> {
    let socket = PathBuf::from(socket);
    let ask = move || {
        let mut command = Command::new("python3");
        command.args(["-c", NONSENSE]).arg(&socket);
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        match command.output() {
            Ok(output) => {
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{errors}");
                Some(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            Err(why) if why.kind() == std::io::ErrorKind::PermissionDenied => None,
            Err(why) => panic!("{why}"),
        }
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_let_in_by_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let stream = Stream::new(1).await;
    let mut config = consumer(dir.path());
    config.socket.mode = "0666".into();
    config.socket.allow_uids = vec![GUEST];
    let daemon = Daemon::start(stream.store.clone(), config);
    while !daemon.socket.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let own = answer(&daemon.socket, None).await.unwrap();
    assert!(own.contains("bad_message"), "{own}");
    let guest = answer(&daemon.socket, Some(GUEST)).await;
    let stranger = answer(&daemon.socket, Some(STRANGER)).await;
    match (guest, stranger) {
        (Some(guest), Some(stranger)) => {
            assert!(guest.contains("bad_message"), "{guest}");
            assert!(stranger.contains("not_allowed"), "{stranger}");
            assert!(
                stranger.contains(&format!("user id {STRANGER}")),
                "{stranger}"
            );
        }
        _ => {
            eprintln!("not tried as other users: this one may not become another (it is not root)")
        }
    }
    daemon.stop().await.unwrap();
}
