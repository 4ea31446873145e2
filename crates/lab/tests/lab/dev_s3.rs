//! `dev-s3` as a process. The crate `batchweave-dev-s3` tests what it serves.

use std::net::TcpListener;

use crate::command;

#[test]
fn a_server_that_cannot_listen_says_why() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let output = command(&["dev-s3", "--listen", &taken]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.starts_with("error: "), "{message}");
    for part in ["cannot listen", &taken, "--listen"] {
        assert!(message.contains(part), "{message}");
    }
}
