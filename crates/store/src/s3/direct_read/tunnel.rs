//! A tunnel through a proxy to a server with TLS.

use std::fmt::Write as _;
use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::authority::Authority;
use super::head;
use crate::proxy::Proxy;

const HEAD_BYTES_MAX: usize = 16 << 10;

/// Asks the proxy at the other end of `stream` for a tunnel to the server.
pub(super) async fn open(stream: &mut TcpStream, proxy: &Proxy, to: &Authority) -> io::Result<()> {
    stream.write_all(request(proxy, to).as_bytes()).await?;
    let mut bytes = BytesMut::new();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(refused("closed the connection"));
        }
        match head::parse(&bytes).map_err(io::Error::other)? {
            // The server speaks only when it has been spoken to, so nothing may follow.
            Some((head, length)) if head.status == 200 && length == bytes.len() => return Ok(()),
            Some((head, _)) if head.status >= 200 => {
                return Err(refused(&format!("answered HTTP {}", head.status)));
            }
            Some((_, length)) => {
                let _ = bytes.split_to(length);
            }
            None if bytes.len() > HEAD_BYTES_MAX => return Err(refused("sent too long a head")),
            None => {}
        }
    }
}

fn refused(how: &str) -> io::Error {
    io::Error::other(format!("the proxy {how} instead of opening a tunnel"))
}

fn request(proxy: &Proxy, to: &Authority) -> String {
    let host = if to.host.contains(':') {
        format!("[{}]:{}", to.host, to.port)
    } else {
        format!("{}:{}", to.host, to.port)
    };
    let mut text = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n");
    if let Some(value) = &proxy.authorization {
        let _ = write!(text, "Proxy-Authorization: {value}\r\n");
    }
    text + "\r\n"
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Opens a tunnel through a proxy that answers with `answer`, and returns the outcome and the request.
    async fn through(answer: &'static str) -> (io::Result<()>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut seen = vec![0; 1024];
            let count = socket.read(&mut seen).await.unwrap();
            socket.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(seen[..count].to_vec()).unwrap()
        });
        let proxy = Proxy {
            host: "127.0.0.1".to_owned(),
            port: address.port(),
            authorization: Some("Basic eA==".to_owned()),
        };
        let to = Authority {
            tls: true,
            host: "b.store.example".to_owned(),
            port: 443,
            name: "b.store.example".to_owned(),
            proxy: None,
        };
        let mut stream = TcpStream::connect(address).await.unwrap();
        let outcome = open(&mut stream, &proxy, &to).await;
        (outcome, served.await.unwrap())
    }

    #[tokio::test]
    async fn a_tunnel_is_asked_for_with_the_name_and_the_password() {
        let (opened, seen) = through("HTTP/1.1 200 Connection established\r\n\r\n").await;
        opened.unwrap();
        assert_eq!(
            seen,
            "CONNECT b.store.example:443 HTTP/1.1\r\nHost: b.store.example:443\r\n\
             Proxy-Authorization: Basic eA==\r\n\r\n"
        );
    }

    #[tokio::test]
    async fn a_refusal_is_an_error_with_its_status() {
        let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
        let why = through(refusal).await.0.unwrap_err().to_string();
        assert!(why.contains("HTTP 407"), "{why}");
        let why = through("").await.0.unwrap_err().to_string();
        assert!(why.contains("closed the connection"), "{why}");
    }
}
