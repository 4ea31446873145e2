//! `batchweave ui`: its page over a real socket, its end, and its refusals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{Ran, World, command};

/// A page that a child process serves.
struct Ui {
    process: Child,
    /// HOST:PORT of the page.
    address: String,
}

impl Ui {
    fn start(world: &World, args: &[&str]) -> Self {
        let mut all = vec!["ui", "--json", "--listen", "127.0.0.1:0"];
        all.extend(args);
        let mut process = command(&all)
            .env("BATCHWEAVE_STORE", world.url())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = process.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(started["root"], world.url());
        let url = started["url"].as_str().unwrap();
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        Self {
            process,
            address: address.to_owned(),
        }
    }

    /// Sends a request, and returns head and body of the answer.
    fn ask(&self, line: &str, host: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn stream(&self) -> Value {
        let (_, body) = self.ask("GET /stream.json", &self.address);
        serde_json::from_str(&body).unwrap()
    }

    fn eventually(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let seen = self.stream();
            if done(&seen) {
                return seen;
            }
            assert!(began.elapsed() < Duration::from_mins(2), "{what}: {seen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn the_page_has_producers_jobs_and_named_daemons() {
    let world = World::with_stream("");
    let mut p0 = world.producer("p0").await;
    world.commit(&mut p0, 5).await;
    assert_eq!(world.run(&["job", "open", "llm"]).code, 0);
    world.attempt("llm", 1, 0, None).await;
    world.mark("llm@2", 0, 2, None).await;
    world.progress("llm@2", 0, 3, (0, 0)).await;
    let ui = Ui::start(&world, &["--every", "1s", "--daemon", "127.0.0.1:1"]);
    let seen = ui.eventually("the named daemon", |seen| seen["daemons"][0].is_object());
    assert_eq!(seen["stream"]["steps"], 5);
    let producer = &seen["producers"][0];
    assert_eq!(
        (&producer["name"], &producer["batches"]),
        (&"p0".into(), &5.into())
    );
    assert!(producer["last_commit_seconds"].is_f64(), "{producer}");
    let job = &seen["jobs"][0];
    assert_eq!(
        (&job["step"], &job["behind"]),
        (&3.into(), &2.into()),
        "{job}"
    );
    assert_eq!(job["restart_points"], serde_json::json!([0, 2]));
    let fault = seen["daemons"][0]["fault"].as_str().unwrap();
    assert!(fault.starts_with("does not answer: "), "{fault}");
    world.commit(&mut p0, 2).await;
    ui.eventually("later commits", |seen| seen["stream"]["steps"] == 7);
    let closed = ["job", "close", "llm", "--reason", "a test", "--force"];
    assert_eq!(world.run(&closed).code, 0);
    ui.eventually("the closed job", |seen| seen["jobs"][0]["open"] == false);
}

#[tokio::test]
async fn requests_are_checked_and_a_signal_ends_it() {
    let world = World::with_stream("p0");
    let mut ui = Ui::start(&world, &[]);
    let (head, page) = ui.ask("GET /", "localhost");
    assert!(
        head.starts_with("HTTP/1.1 200") && head.contains("default-src 'none'"),
        "{head}"
    );
    let namespace = "http://www.w3.org/2000/svg";
    assert!(
        page.contains("Producers") && !page.replace(namespace, "").contains("src="),
        "{page}"
    );
    for (line, host, status) in [
        ("GET /stream.json", "evil.example", "421"),
        ("GET /status.json", "localhost", "404"),
        ("POST /stream.json", "localhost", "405"),
        ("HEAD /stream.json", "localhost", "200"),
    ] {
        let (head, _) = ui.ask(line, host);
        assert_eq!(head.split(' ').nth(1), Some(status), "{line}: {head}");
    }
    let pid = ui.process.id().to_string();
    assert!(
        std::process::Command::new("kill")
            .arg(&pid)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(ui.process.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_shown_is_refused_in_one_line() {
    let one_line = |ran: &Ran, code: i32, parts: &[&str]| {
        ran.fails(code, parts);
        assert_eq!(ran.err.trim_end().lines().count(), 1, "{ran:?}");
    };
    let world = World::with_stream("p0");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let ran = world.run(&["ui", "--listen", &taken]);
    one_line(&ran, 1, &["cannot listen on", &taken, "--listen"]);
    one_line(
        &world.run(&["ui", "--every", "10ms"]),
        64,
        &["--every 10ms is too short"],
    );
    let many = vec!["h:1"; 257].join(",");
    one_line(
        &world.run(&["ui", "--daemon", &many]),
        64,
        &["257 daemons are too many"],
    );
    for (option, value) in [("--daemon", "http://node:9465"), ("--listen", "9466")] {
        let ran = world.run(&["ui", option, value]);
        ran.fails(64, &["invalid address", value]);
    }
    one_line(
        &World::new().run(&["ui", "--listen", "127.0.0.1:0"]),
        73,
        &["no stream"],
    );
    let missing = command(&[
        "ui",
        "--listen",
        "127.0.0.1:0",
        "--store",
        "file:///no/such/folder",
    ])
    .output();
    assert_ne!(missing.unwrap().status.code(), Some(0));
    // Also beside another page at the address: systemd restarts what ends with 1.
    let none = Ran::of(&mut command(&["ui", "--listen", &taken]));
    one_line(&none, 64, &["no store"]);
}
