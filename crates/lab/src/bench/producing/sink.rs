//! A server that accepts any PUT and discards the body, so that a measurement shows the client alone. Runs
//! on threads of its own.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Starts the server; each thread ends with its connection, the first one with the process.
pub(super) fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that disconnects is not an error of the server.
            std::thread::spawn(move || drop(serve(&stream)));
        }
    });
    Ok(address)
}

fn serve(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut from = BufReader::with_capacity(1 << 20, stream);
    let mut to = stream;
    let mut rest = vec![0; 1 << 20];
    loop {
        let (mut length, mut expects, mut line) = (0, false, String::new());
        if from.read_line(&mut line)? == 0 {
            return Ok(());
        }
        while !line.trim_end().is_empty() {
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            expects |= lower.starts_with("expect:");
            line.clear();
            from.read_line(&mut line)?;
        }
        if expects {
            to.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let mut left: usize = length;
        while left > 0 {
            let want = left.min(rest.len());
            let read = from.read(&mut rest[..want])?;
            if read == 0 {
                return Ok(());
            }
            left -= read;
        }
        to.write_all(b"HTTP/1.1 200 OK\r\nETag: \"sink\"\r\nContent-Length: 0\r\n\r\n")?;
    }
}

/// Sends one PUT on an open connection and reads the answer.
pub(super) fn put(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "PUT /bucket/key HTTP/1.1\r\nHost: sink\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    let mut byte = [0; 256];
    while !answer.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut byte)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&byte[..read]);
    }
    Ok(())
}
