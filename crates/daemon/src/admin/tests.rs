//! The endpoint over real sockets on port 0.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::health::DataSample;
use crate::web::{MAX_CONNECTIONS, MAX_HEAD_BYTES, MAX_HEADERS};

const STATUS_PAGE: StatusPage = StatusPage {
    program: "batchweave-test",
    version: "1",
    plots: &[],
    ranks: None,
    tables: &[],
    held: None,
    jobs: None,
};

async fn started() -> (SocketAddr, Health, Registry, CancellationToken) {
    let (registry, health, stop) = (Registry::new(), Health::default(), CancellationToken::new());
    let admin = bound("127.0.0.1:0", &registry, &health).await;
    let address = admin.address().unwrap();
    tokio::spawn(admin.serve(stop.clone()));
    (address, health, registry, stop)
}

async fn bound(address: &str, registry: &Registry, health: &Health) -> Admin {
    let address = address.parse().unwrap();
    let admin = Admin::bind(
        address,
        registry.clone(),
        health.clone(),
        STATUS_PAGE,
        Identity::default(),
    );
    admin.await.unwrap()
}

async fn send(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that refuses a request early closes the connection.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    // A server that refuses a head may reset the connection after its answer.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

async fn get(address: SocketAddr, path: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    send(address, &head).await
}

#[tokio::test]
async fn a_stuck_part_is_not_healthy() {
    let (registry, health) = (Registry::new(), Health::default());
    let mut admin = bound("127.0.0.1:0", &registry, &health).await;
    admin.state.stuck_after = Duration::ZERO;
    let address = admin.address().unwrap();
    tokio::spawn(admin.serve(CancellationToken::new()));
    let nothing_moves_yet = get(address, "/healthz").await;
    assert!(
        nothing_moves_yet.starts_with("HTTP/1.1 200"),
        "{nothing_moves_yet}"
    );
    health.beat("serving");
    tokio::time::sleep(Duration::from_millis(2)).await;
    let stuck = get(address, "/healthz").await;
    assert!(stuck.starts_with("HTTP/1.1 503"), "{stuck}");
    assert!(stuck.contains("stuck: serving"), "{stuck}");
}

#[tokio::test]
async fn the_three_pages() {
    let (address, health, registry, _stop) = started().await;
    let counter = prometheus::IntCounter::new("batchweave_test_total", "help").unwrap();
    registry.register(Box::new(counter.clone())).unwrap();
    counter.inc_by(3);
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    let starting = get(address, "/readyz").await;
    assert!(
        starting.starts_with("HTTP/1.1 503") && starting.ends_with("starting\n"),
        "{starting}"
    );
    health.ready("at step 7");
    let ready = get(address, "/readyz").await;
    assert!(
        ready.starts_with("HTTP/1.1 200") && ready.ends_with("at step 7\n"),
        "{ready}"
    );
    assert!(
        get(address, "/metrics")
            .await
            .contains("batchweave_test_total 3\n")
    );
}

#[tokio::test]
async fn the_page_needs_nothing_from_outside() {
    let (address, ..) = started().await;
    let page = get(address, "/").await;
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("default-src 'none'"),
        "{page}"
    );
    let namespace = "http://www.w3.org/2000/svg";
    assert!(
        !page.replace(namespace, "").contains("://"),
        "an outside address"
    );
    let status = get(address, "/status.json").await;
    assert!(
        status.contains("\"program\":\"batchweave-test\""),
        "{status}"
    );
}

#[tokio::test]
async fn a_sample_of_the_data_is_in_the_status_of_a_daemon_that_shows_one() {
    let (address, health, ..) = started().await;
    assert!(!get(address, "/status.json").await.contains("\"sample\""));
    health.show_sample(DataSample {
        batch: 7,
        source: "a.jsonl:3".to_owned(),
        text: "<b>Once</b> \u{2028}".to_owned(),
    });
    let status = get(address, "/status.json").await;
    let (_, body) = status.split_once("\r\n\r\n").unwrap();
    let json: serde_json::Value = serde_json::from_str(body).unwrap();
    let expected = serde_json::json!({
        "batch": 7, "source": "a.jsonl:3", "text": "<b>Once</b> \u{2028}",
    });
    assert_eq!(json["sample"], expected);
}

#[tokio::test]
async fn other_paths_and_methods() {
    let (address, ..) = started().await;
    for path in ["/x", "/metrics/", "//", "/../etc/passwd"] {
        assert!(
            get(address, path).await.starts_with("HTTP/1.1 404"),
            "{path}"
        );
    }
    let post = send(
        address,
        "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    assert!(
        post.starts_with("HTTP/1.1 405") && post.contains("allow: GET, HEAD"),
        "{post}"
    );
}

#[tokio::test]
async fn oversized_heads_are_refused() {
    let (address, ..) = started().await;
    let many = "X-A: 1\r\n".repeat(MAX_HEADERS + 8);
    let answer = send(address, &format!("GET /healthz HTTP/1.1\r\n{many}\r\n")).await;
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    let long = "x".repeat(64 * MAX_HEAD_BYTES);
    for request in [
        format!("GET /healthz HTTP/1.1\r\nX-Long: {long}\r\n\r\n"),
        format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        long.clone(),
    ] {
        let answer = send(address, &request).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_client_that_sends_too_slowly_is_disconnected() {
    let (address, ..) = started().await;
    let mut dripping = TcpStream::connect(address).await.unwrap();
    let mut drops = 0_u32;
    // A server without a deadline would accept single bytes of a header for ever.
    while dripping.write_all(b"G").await.is_ok() {
        drops += 1;
        assert!(drops < 600, "still listening after a minute");
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn connections_that_trickle_do_not_lock_others_out() {
    let (registry, health, stop) = (Registry::new(), Health::default(), CancellationToken::new());
    let mut admin = bound("127.0.0.1:0", &registry, &health).await;
    // The deadline of the endpoint must not be what closes the connections.
    admin.server.deadline = Duration::from_hours(1);
    let address = admin.address().unwrap();
    tokio::spawn(admin.serve(stop.clone()));
    let mut trickling = Vec::new();
    for _ in 0..MAX_CONNECTIONS + 4 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /hea").await.unwrap();
        trickling.push(stream);
    }
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn localhost_answers_to_its_own_names_only() {
    let (registry, health, stop) = (Registry::new(), Health::default(), CancellationToken::new());
    let everywhere = bound("0.0.0.0:0", &registry, &health).await;
    let port = everywhere.address().unwrap().port();
    tokio::spawn(everywhere.serve(stop.clone()));
    let (address, ..) = started().await;
    let asked = async |address, host: &str| {
        let head = format!("GET /status.json HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = send(address, &head).await;
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    for host in [
        "localhost",
        "LOCALHOST:9464",
        "127.0.0.1:1",
        "[::1]:9464",
        "10.0.0.7",
    ] {
        assert_eq!(asked(address, host).await, "200", "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example:9464",
        "127.0.0.1.evil.example",
        "a b",
        "",
    ] {
        assert_eq!(asked(address, host).await, "421", "{host}");
    }
    // On a network address it answers to any name, because it cannot know its names.
    let open = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(asked(open, "consumer.training.svc:9464").await, "200");
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let (address, ..) = started().await;
    let why = Admin::bind(
        address,
        Registry::new(),
        Health::default(),
        STATUS_PAGE,
        Identity::default(),
    )
    .await
    .expect_err("taken");
    assert!(why.to_string().contains(&address.to_string()), "{why}");
}
