//! `dev-s3` as a process, and the other verbs on its bucket.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::world::{Ran, command};

const URL: &str = "s3://streams/one";

struct Server {
    child: Child,
    ready: Value,
}

impl Server {
    fn start() -> Self {
        let args = [
            "dev-s3",
            "--listen",
            "127.0.0.1:0",
            "--bucket",
            "streams",
            "--json",
        ];
        let mut child = command(&args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready = serde_json::from_str(&line).unwrap();
        Self { child, ready }
    }

    fn run(&self, args: &[&str], secret: &str) -> Ran {
        let text = |name: &str| self.ready[name].as_str().unwrap().to_owned();
        let mut command = command(args);
        command
            .env("AWS_ENDPOINT_URL", text("endpoint"))
            .env("AWS_ACCESS_KEY_ID", text("access_key"))
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .env("AWS_REGION", text("region"))
            .env("BATCHWEAVE_STORE", URL);
        Ran::of(&mut command)
    }

    fn secret(&self) -> &str {
        self.ready["secret_key"].as_str().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_bucket_serves_as_root() {
    let server = Server::start();
    let init = [
        "init",
        "--slices",
        "2",
        "--rows-per-slice",
        "1",
        "--seq-len",
        "4",
    ];
    let hash = "0".repeat(64);
    let named = ["--tokenizer", "t", "--fingerprint", &hash];
    let made = server.run(&[&init[..], &named].concat(), server.secret());
    made.prints(&["stream created", URL]);
    server
        .run(&["status"], server.secret())
        .prints(&["head       no commit yet; 0 steps\n"]);
    server
        .run(&["doctor", "--rounds", "2"], server.secret())
        .prints(&[
            "ok    clock",
            "ok    exclusive create  exactly one winner in each of 2 races of 16\n",
            "warn  bucket rules",
            "--bucket streams",
        ]);
}

#[test]
fn missing_permissions_and_buckets_are_explained() {
    let server = Server::start();
    let denied = server.run(&["status"], "wrong");
    denied.fails(69, &[URL, "check the credentials and their permissions"]);
    let doctor = server.run(&["doctor"], "wrong");
    assert_eq!(doctor.code, 69, "{doctor:?}");
    assert!(
        doctor.out.contains("FAIL  get") && doctor.out.contains("s3:ListBucket"),
        "{doctor:?}"
    );
    let absent = server.run(&["status", "--store", "s3://absent/x"], server.secret());
    absent.fails(69, &["s3://absent/x", "create the bucket or folder"]);
}

#[test]
fn a_server_that_cannot_listen_says_why() {
    let server = Server::start();
    let taken = server.ready["endpoint"]
        .as_str()
        .unwrap()
        .trim_start_matches("http://");
    let second = Ran::of(&mut command(&["dev-s3", "--listen", taken]));
    second.fails(1, &["cannot listen", taken, "--listen"]);
}
