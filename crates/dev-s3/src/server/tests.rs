//! Tests of the running server by raw HTTP: faults on the wire, counting, stopping. boto3, aws-cli and
//! the store's conformance suite test signed clients.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::{Fault, Injection, Op};

async fn start(options: Options) -> Server {
    Server::start(options).await.unwrap()
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address()).await.unwrap()
}

/// Sends one request and reads until the server closes.
async fn ask(server: &Server, head: &str, body: &str) -> std::io::Result<String> {
    let mut stream = connect(server).await;
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn always(fault: Fault) -> Options {
    let spec = format!("{}=1", fault.name()).parse().unwrap();
    Options {
        faults: Some(spec),
        ..Options::default()
    }
}

#[tokio::test]
async fn unsigned_requests_are_refused() {
    let server = start(Options::default()).await;
    let answer = ask(&server, "GET /batchweave/k", "").await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("AccessDenied"),
        "{answer}"
    );
    assert!(answer.contains("x-amz-request-id"), "{answer}");
    let stats = server.stats();
    assert_eq!(
        (stats.of(Op::Get), stats.total(), stats.answers.get(&403)),
        (1, 1, Some(&1))
    );
    server.shutdown().await;
}

#[tokio::test]
async fn ordered_errors_are_answered_after_the_body_was_read() {
    for (fault, status, code) in [
        (Fault::Error, "500", "InternalError"),
        (Fault::Slow, "503", "SlowDown"),
    ] {
        let server = start(always(fault)).await;
        let answer = ask(&server, "PUT /batchweave/k", &"x".repeat(4 << 20))
            .await
            .unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(code),
            "{answer}"
        );
        let stats = server.stats();
        assert_eq!(
            (stats.faults.get(fault.name()), stats.bytes_in),
            (Some(&1), 4 << 20)
        );
    }
}

#[tokio::test]
async fn resets_and_lost_answers_cut_the_connection() {
    for fault in [Fault::Reset, Fault::Lost] {
        let server = start(always(fault)).await;
        let error = ask(&server, "GET /batchweave/k", "").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{fault:?}");
    }
}

#[tokio::test]
async fn a_stalled_request_ends_with_the_server() {
    let server = start(always(Fault::Stall)).await;
    let mut stream = connect(&server).await;
    stream
        .write_all(b"GET /batchweave/k HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    while server.stats().total() == 0 {
        tokio::task::yield_now().await;
    }
    drop(server);
    let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn the_store_can_be_switched_off_and_on() {
    let server = start(Options::default()).await;
    server.faults().set_down(true);
    assert!(ask(&server, "GET /batchweave/k", "").await.is_err());
    server.faults().set_down(false);
    assert!(
        ask(&server, "GET /batchweave/k", "")
            .await
            .unwrap()
            .starts_with("HTTP/1.1 403")
    );
    server.faults().inject(Injection {
        fault: Fault::Reset,
        op: Some(Op::Get),
        key_contains: "/log/".to_owned(),
        times: 1,
    });
    assert!(
        ask(&server, "GET /batchweave/root/data/1", "")
            .await
            .is_ok()
    );
    assert!(
        ask(&server, "GET /batchweave/root/log/1", "")
            .await
            .is_err()
    );
    assert!(ask(&server, "GET /batchweave/root/log/1", "").await.is_ok());
}

#[tokio::test]
async fn shutdown_closes_idle_connections_at_once() {
    let server = start(Options::default()).await;
    let mut stream = connect(&server).await;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    while server.stats().answers.is_empty() {
        tokio::task::yield_now().await;
    }
    let address = server.address();
    server.shutdown().await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(TcpStream::connect(address).await.is_err());
}

/// The body takes 250 ms over the link on any machine; buffers may hide some of it.
#[tokio::test]
async fn a_slow_link_takes_its_time_for_bytes() {
    let server = start(Options {
        bytes_per_second: Some(16 << 20),
        ..always(Fault::Error)
    })
    .await;
    let begun = std::time::Instant::now();
    let body = "x".repeat(4 << 20);
    let answer = ask(&server, "PUT /batchweave/k", &body).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(240), "{took:?}");
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let server = start(Options::default()).await;
    let taken = Options {
        listen: server.address(),
        ..Options::default()
    };
    let error = Server::start(taken).await.err().unwrap().to_string();
    assert!(
        error.contains("cannot listen on 127.0.0.1") && error.contains("--listen"),
        "{error}"
    );
    let unnamed = Options {
        buckets: vec!["No".to_owned()],
        ..Options::default()
    };
    let error = Server::start(unnamed).await.err().unwrap().to_string();
    assert!(error.contains("bucket name `No`"), "{error}");
}

#[tokio::test]
async fn puts_that_were_asked_for_are_noted_with_their_outcome() {
    let server = start(Options {
        journal: Some("log/".to_owned()),
        ..Options::default()
    })
    .await;
    for head in [
        "PUT /batchweave/log/1",
        "PUT /batchweave/data",
        "GET /batchweave/log/1",
    ] {
        ask(&server, head, "").await.unwrap();
    }
    let puts = server.puts();
    let noted: Vec<_> = puts.iter().map(|d| (d.key.as_str(), d.status)).collect();
    assert_eq!(noted, [("log/1", 403)]);
    server.shutdown().await;
}
