//! Requests to the admin endpoint of a daemon.

use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::output;

/// Time-out of a request; the endpoint answers from memory.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of an answer with metrics.
pub const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// Requests `path` of the endpoint at the address `admin`. Returns whether the status is 200, and the body. Head and
/// body may have at most `bytes_max` bytes.
pub fn get<'a>(
    admin: &'a str,
    path: &'a str,
    bytes_max: u64,
) -> BoxFuture<'a, io::Result<(bool, String)>> {
    Box::pin(answer(admin, path, bytes_max))
}

async fn answer(admin: &str, path: &str, bytes_max: u64) -> io::Result<(bool, String)> {
    let answer = timeout(PATIENCE, async {
        let mut stream = TcpStream::connect(admin).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let (mut bytes, mut answer) = (Vec::new(), stream.take(bytes_max + 1));
        answer.read_to_end(&mut bytes).await?;
        Ok::<_, io::Error>(bytes)
    });
    let late = || {
        let text = format!("no whole answer within {} s", PATIENCE.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, text)
    };
    let bytes = answer.await.map_err(|_| late())??;
    if bytes.len() as u64 > bytes_max {
        let text = format!("an answer of more than {}", output::bytes(bytes_max));
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let foreign = || io::Error::new(io::ErrorKind::InvalidData, "an answer that is not HTTP");
    let text = String::from_utf8(bytes).map_err(|_| foreign())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(foreign)?;
    let good = head.split_ascii_whitespace().nth(1) == Some("200");
    Ok((good, body.to_owned()))
}
