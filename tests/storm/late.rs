//! A proxy that delays each second answer of the server, like a busy or distant store.

use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The longest delay of an answer; each delay is between a tenth of this and all of it.
const LATE: Duration = Duration::from_millis(1500);
const PIECE: usize = 64 << 10;

/// Starts the proxy in front of `server` on a free port and returns its address. It runs as long as
/// the runtime.
pub(crate) async fn start(server: SocketAddr, seed: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut rng = StdRng::seed_from_u64(seed);
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, server, StdRng::seed_from_u64(rng.random())));
        }
    });
    address
}

/// Carries one connection until one side closes it, then closes the other side.
async fn carry(client: TcpStream, server: SocketAddr, mut rng: StdRng) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let asked = tokio::sync::Notify::new();
    let up = async {
        let mut piece = vec![0; PIECE];
        while let Ok(count @ 1..) = from_client.read(&mut piece).await {
            asked.notify_one();
            if to_server.write_all(&piece[..count]).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut piece = vec![0; PIECE];
        while let Ok(count @ 1..) = from_server.read(&mut piece).await {
            let first = is_ready(asked.notified()).await;
            if first && rng.random_bool(0.5) {
                tokio::time::sleep(LATE.mul_f64(rng.random_range(0.1..1.0))).await;
            }
            if to_client.write_all(&piece[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = up => {}
        () = down => {}
    }
}

/// Returns true if a future is ready now: a request was sent since the last answer.
async fn is_ready(ready: impl Future<Output = ()>) -> bool {
    tokio::time::timeout(Duration::ZERO, ready).await.is_ok()
}
