//! A server on a raw socket that reads whole requests and sends scripted answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use batchweave_store::Store;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The treatment of one request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// These bytes, then the connection is closed.
    Bytes(Vec<u8>),
    /// These bytes, and the connection stays open for the next request.
    Kept(Vec<u8>),
    /// These bytes, then the others repeatedly until the client closes the connection.
    Endless(Vec<u8>, Vec<u8>),
    /// These bytes after a pause, then the connection is closed.
    Late(Duration, Vec<u8>),
    /// The connection is reset after the request was read.
    Reset,
    /// The connection is reset before the body of the request was read.
    Unread,
    /// No answer, for ever.
    Silence,
}

/// The received requests, each as its head and the number of its connection.
pub(crate) type Seen = Arc<Mutex<Vec<String>>>;

/// An S3 error document under a status line.
pub(crate) fn refusal(status: &str, code: &str, headers: &str) -> Answer {
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>made up</Message></Error>"
    );
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nx-amz-request-id: REQ-1\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    Answer::Bytes([head, body].concat().into_bytes())
}

/// A good answer with a body.
pub(crate) fn ok(headers: &str, body: &str) -> Answer {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 200 OK\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    Answer::Bytes(text.into_bytes())
}

/// A partial answer to a ranged read: it promises `range` and sends only `body`.
pub(crate) fn partial(first: usize, last: usize, size: usize, body: &[u8]) -> Answer {
    let length = last - first + 1;
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nETag: \"e1\"\r\nContent-Range: bytes {first}-{last}/{size}\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    Answer::Bytes([head.as_bytes(), body].concat())
}

/// The answers that remain to be sent.
type Script = Arc<Mutex<VecDeque<Answer>>>;

/// Returns a header of a received request.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(": ");
    head.lines().find_map(value).unwrap_or("missing")
}

/// Serves the answers in order, the last one repeatedly, to a store in S3.
pub(crate) async fn scripted(answers: Vec<Answer>) -> (Arc<dyn Store>, Seen) {
    let (endpoint, seen) = served(answers);
    let store = crate::s3::store_at(&endpoint, "p", ("id", "secret"));
    (store.await, seen)
}

/// Serves the answers in order, the last one repeatedly; returns the server's URL and the requests.
pub(crate) fn served(answers: Vec<Answer>) -> (String, Seen) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    served_on(listener, answers)
}

/// Serves the answers as [`served`] does, on this socket.
pub(crate) fn served_on(listener: std::net::TcpListener, answers: Vec<Answer>) -> (String, Seen) {
    let listener = TcpListener::from_std(listener).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let requests = Arc::clone(&seen);
    let script: Script = Arc::new(Mutex::new(answers.into()));
    tokio::spawn(async move {
        for connection in 0.. {
            let (socket, _) = listener.accept().await.unwrap();
            let (script, seen) = (Arc::clone(&script), Arc::clone(&requests));
            tokio::spawn(serve(socket, connection, script, seen));
        }
    });
    (endpoint, seen)
}

async fn serve(mut socket: TcpStream, connection: u32, script: Script, seen: Seen) {
    loop {
        let unread = matches!(script.lock().unwrap().front(), Some(Answer::Unread));
        let Some(head) = read_request(&mut socket, !unread).await else {
            return;
        };
        let answer = {
            let mut script = script.lock().unwrap();
            let last = script.len() == 1;
            let next = if last {
                script.front().cloned()
            } else {
                script.pop_front()
            };
            seen.lock()
                .unwrap()
                .push(format!("{head}\nconnection-number: {connection}"));
            next.unwrap()
        };
        match answer {
            Answer::Kept(bytes) => {
                let _ = socket.write_all(&bytes).await;
            }
            Answer::Bytes(bytes) => {
                let _ = socket.write_all(&bytes).await;
                let _ = socket.shutdown().await;
                return;
            }
            Answer::Late(pause, bytes) => {
                tokio::time::sleep(pause).await;
                let _ = socket.write_all(&bytes).await;
                let _ = socket.shutdown().await;
                return;
            }
            Answer::Endless(bytes, more) => {
                let _ = socket.write_all(&bytes).await;
                while socket.write_all(&more).await.is_ok() {}
                return;
            }
            // Closing with linger zero sends a reset.
            Answer::Reset | Answer::Unread => return socket.set_zero_linger().unwrap(),
            Answer::Silence => std::future::pending().await,
        }
    }
}

async fn read_request(socket: &mut TcpStream, whole: bool) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.lines().next()?.trim().parse().ok());
            if !whole || bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Some(head);
            }
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
