//! The verbs on a bucket of `dev-s3`, and their errors when no server answers.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use batchweave_dev_s3::{Fault, Injection, Op, Options};
use batchweave_store::{AccessKeys, OpenOptions};
use tokio::runtime::Runtime;

use crate::world::{Ran, command};

const URL: &str = "s3://streams/one";
const REGION: &str = "us-east-1";

/// A server with the bucket `streams`, on threads of its own.
struct Server {
    runtime: Runtime,
    endpoint: String,
    options: Options,
    running: batchweave_dev_s3::Server,
}

impl Server {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let options = Options {
            buckets: vec!["streams".to_owned()],
            ..Options::default()
        };
        let started = batchweave_dev_s3::Server::start(options.clone());
        let server = runtime.block_on(started).unwrap();
        Self {
            runtime,
            endpoint: server.endpoint(),
            options,
            running: server,
        }
    }

    fn run(&self, args: &[&str], secret: &str) -> Ran {
        Ran::of(&mut self.command(args, secret))
    }

    fn command(&self, args: &[&str], secret: &str) -> Command {
        let mut command = command(args);
        command
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ACCESS_KEY_ID", &self.options.access_key)
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .env("AWS_REGION", REGION)
            .env("BATCHWEAVE_STORE", URL);
        command
    }

    /// Returns all keys in the bucket.
    fn keys(&self) -> Vec<String> {
        let options = OpenOptions {
            endpoint: Some(self.endpoint.clone()),
            region: Some(REGION.to_owned()),
            keys: Some(AccessKeys {
                id: self.options.access_key.clone(),
                secret: self.options.secret_key.clone(),
            }),
            ..OpenOptions::default()
        };
        self.runtime.block_on(async {
            let store = batchweave_store::open("s3://streams", &options)
                .await
                .unwrap();
            let page = store.list("", None).await.unwrap();
            page.objects.into_iter().map(|object| object.key).collect()
        })
    }

    fn secret(&self) -> &str {
        &self.options.secret_key
    }
}

#[test]
fn a_bucket_serves_as_root() {
    let server = Server::start();
    init(&server);
    server
        .run(&["status"], server.secret())
        .prints(&["data       none yet\n", "end        open\n"]);
    server
        .run(
            &["doctor", "--rounds", "2", "--samples", "8"],
            server.secret(),
        )
        .prints(&[
            "ok    clock",
            "ok    exclusive create  one winner in each of 2 races of 16 creates; a late body replaced nothing\n",
            "ok    exclusive upload  one winner in each of 1 race of 8 multipart uploads\n",
            "ok    checksums",
            "ok    log/         put, get\n",
            "ok    data/        put, get, list, delete\n",
            "warn  log/ delete",
            "-> deny s3:DeleteObject",
            "ok    versioning  off",
            "ok    lifecycle   no rule reaches this root\n",
            "fit for use, with warnings",
        ]);
    assert_eq!(server.keys(), ["one/stream.json"]);
    let denied = server.run(&["delete", "--yes"], "wrong");
    denied.fails(69, &["check the access key and the secret key"]);
    server
        .run(&["delete", URL, "--yes"], server.secret())
        .prints(&["1 object deleted; the stream is gone"]);
    assert_eq!(server.keys(), Vec::<String>::new());
}

/// Makes a stream by `init`.
fn init(server: &Server) {
    let shape = ["--slices", "2", "--rows-per-slice", "1", "--seq-len", "4"];
    let hash = "0".repeat(64);
    let tokenizer = ["--tokenizer", "t", "--fingerprint", &hash];
    let made = server.run(
        &[&["init"][..], &shape, &tokenizer].concat(),
        server.secret(),
    );
    made.prints(&["stream created", URL]);
}

#[test]
fn a_key_that_one_read_does_not_find_is_read_again_and_the_store_is_named() {
    let server = Server::start();
    init(&server);
    server.running.faults().inject(Injection {
        fault: Fault::Absent,
        op: Some(Op::Get),
        key_contains: "stream.json".to_owned(),
        // The first read only asks whether the store answers.
        times: 2,
    });
    let status = server.run(&["status"], server.secret());
    status.prints(&["data       none yet\n"]);
    assert_eq!(
        status.err,
        "warning: a read found no stream.json, and the next one did: it was written in between, or the store returned an older version\n"
    );
    let again = server.run(&["status"], server.secret());
    assert_eq!(again.err, "", "{again:?}");
}

#[test]
fn missing_permissions_and_buckets_are_explained() {
    let server = Server::start();
    let denied = server.run(&["status"], "wrong");
    denied.fails(69, &[URL, "check the access key and the secret key"]);
    let doctor = server.run(&["doctor"], "wrong");
    assert_eq!(doctor.code, 69, "{doctor:?}");
    assert!(
        doctor.out.contains("FAIL  credentials") && doctor.out.contains("-> check the access key"),
        "{doctor:?}"
    );
    let absent = server.run(&["status", "--store", "s3://absent/x"], server.secret());
    absent.fails(69, &["s3://absent/x", "create the bucket or folder"]);
    let doctor = server.run(&["doctor", "--store", "s3://absent/x"], server.secret());
    assert_eq!(doctor.code, 69, "{doctor:?}");
    let lines: Vec<_> = doctor.out.lines().collect();
    assert_eq!(lines.len(), 7, "{doctor:?}");
    assert!(
        lines[3].starts_with("  FAIL  bucket  s3://absent is not there: "),
        "{doctor:?}"
    );
    assert!(lines[4].contains("-> create the bucket"), "{doctor:?}");
    assert_eq!(lines[6], "not fit for use: 0 ok, 1 failed");
}

#[test]
fn an_endpoint_without_a_listener_is_one_line() {
    // A reserved port, which no other test takes.
    let endpoint = "http://127.0.0.1:1";
    let mut doctor = command(&["doctor", "--store", "s3://nobody/x", "--endpoint", endpoint]);
    doctor.env("AWS_ACCESS_KEY_ID", "id");
    doctor.env("AWS_SECRET_ACCESS_KEY", "secret");
    let ran = Ran::of(&mut doctor);
    assert_eq!(ran.code, 69, "{ran:?}");
    let line = ran.out.lines().nth(3).unwrap_or_default();
    let expected = format!("  FAIL  endpoint  no connection to {endpoint}: Connection refused");
    assert!(line.starts_with(&expected), "{ran:?}");
    assert!(ran.out.contains("-> check the endpoint"), "{ran:?}");
}

#[test]
fn an_interrupted_doctor_cleans_up() {
    let server = Server::start();
    let args = ["doctor", "--rounds", "1000000"];
    let mut command = server.command(&args, server.secret());
    let mut doctor = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while server.keys().is_empty() {
        assert_eq!(doctor.try_wait().unwrap(), None, "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let interrupt = ["-INT", &doctor.id().to_string()].map(str::to_owned);
    assert!(
        std::process::Command::new("kill")
            .args(interrupt)
            .status()
            .unwrap()
            .success()
    );
    let output = doctor.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("error: interrupted"), "{said}");
    assert_eq!(server.keys(), Vec::<String>::new());
}

/// A server that closes every connection, and the number of connections so far.
fn rude() -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for visitor in listener.incoming() {
            // Counted first: a client may ask for the count as soon as its connection is closed.
            counted.fetch_add(1, Ordering::Relaxed);
            drop(visitor);
        }
    });
    (endpoint, count)
}

#[test]
fn verbs_give_up_on_a_dead_endpoint_after_two_tries_with_one_error() {
    for verb in [
        &["status"][..],
        &["log", "--limit", "1"],
        &["show", "0"],
        &["job", "list"],
        &["seal", "--reason", "the end"],
        &["reclaim"],
        &["verify"],
    ] {
        let (endpoint, tries) = rude();
        let mut command = command(&[verb, &["--store", URL, "--endpoint", &endpoint]].concat());
        command
            .env("AWS_ACCESS_KEY_ID", "a")
            .env("AWS_SECRET_ACCESS_KEY", "b");
        let ran = Ran::of(&mut command);
        ran.fails(69, &[URL, "check the network path to the store"]);
        assert_eq!(ran.err.lines().count(), 1, "{verb:?}: {ran:?}");
        assert_eq!(tries.load(Ordering::Relaxed), 2, "{verb:?}: {ran:?}");
    }
    let nobody = ["doctor", "--store", URL, "--endpoint", "http://127.0.0.1:9"];
    let mut doctor = command(&nobody);
    doctor
        .env("AWS_ACCESS_KEY_ID", "a")
        .env("AWS_SECRET_ACCESS_KEY", "b");
    let doctor = Ran::of(&mut doctor);
    assert_eq!(doctor.code, 69, "{doctor:?}");
    assert!(doctor.out.contains("FAIL  endpoint"), "{doctor:?}");
}
