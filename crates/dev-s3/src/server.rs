//! The server: options, socket, connections, and shutdown.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use rand::SeedableRng;
use rand::rngs::StdRng;
use s3s::auth::{S3Auth, SecretKey};
use s3s::host::{S3Host, VirtualHost};
use s3s::service::S3ServiceBuilder;
use s3s::{S3Result, s3_error};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::api::Api;
use crate::faults::Faults;
use crate::front::{Connection, Front};
use crate::journal::{Journal, PutRecord};
use crate::link::Link;
use crate::op::bucket_of_host;
use crate::policy::{Policies, PolicyArg};
use crate::stats::{Counters, Stats};
use crate::storage::{Order, Storage};
use crate::{Error, FaultSpec, LatencyProfile};

/// The options of a server. `Options::default()` suits tests: a free port, in memory, no latency,
/// no faults, one bucket named `batchweave`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The folder of the objects; `None` keeps them in memory.
    pub dir: Option<PathBuf>,
    /// The latencies of requests.
    pub latency: LatencyProfile,
    /// The random faults of requests.
    pub faults: Option<FaultSpec>,
    /// Seed of latency, faults and the order of unordered listings.
    pub seed: u64,
    /// Bytes per second of each connection in each direction; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// List keys in a random but stable order, as S3 Express does.
    pub unordered_list: bool,
    /// The access key that clients sign with.
    pub access_key: String,
    /// The secret of that key.
    pub secret_key: String,
    /// The buckets to create.
    pub buckets: Vec<String>,
    /// Further access keys with policies; the secret is the same.
    pub policies: Vec<PolicyArg>,
    /// The largest body and object, in bytes; a body is in memory while it arrives.
    pub max_body_bytes: usize,
    /// Against the contract: conditional puts check the key when their headers have arrived, and
    /// write when their body has. Tests of the start-up probe need such a store.
    pub checks_early: bool,
    /// Records puts of keys that contain this text; see [`Server::puts`].
    pub journal: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            dir: None,
            latency: LatencyProfile::None,
            faults: None,
            seed: 0,
            bytes_per_second: None,
            unordered_list: false,
            access_key: "batchweave".to_owned(),
            secret_key: "batchweave-dev-secret".to_owned(),
            buckets: vec!["batchweave".to_owned()],
            policies: Vec::new(),
            max_body_bytes: 1024 * 1024 * 1024,
            checks_early: false,
            journal: None,
        }
    }
}

/// A running server. Dropping it resets all its connections.
pub struct Server {
    address: SocketAddr,
    front: Arc<Front>,
    stop: CancellationToken,
    connections: TaskTracker,
    _kill: DropGuard,
    kill: CancellationToken,
}

/// The time that open requests have after `shutdown`.
const DRAIN: Duration = Duration::from_secs(5);

impl Server {
    /// Starts the server on the current tokio runtime.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let front = Arc::new(build_front(&options)?);
        let failed = |source| Error::Listen {
            address: options.listen,
            source,
        };
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, kill, connections) = (
            CancellationToken::new(),
            CancellationToken::new(),
            TaskTracker::new(),
        );
        let acceptor = Acceptor {
            front: Arc::clone(&front),
            bytes_per_second: options.bytes_per_second,
            stop: stop.clone(),
            kill: kill.clone(),
            connections: connections.clone(),
        };
        connections.spawn(acceptor.run(listener));
        Ok(Self {
            address,
            front,
            stop,
            connections,
            _kill: kill.clone().drop_guard(),
            kill,
        })
    }

    /// Returns the endpoint URL for clients.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counts since the start.
    pub fn stats(&self) -> Stats {
        self.front.counters.snapshot()
    }

    /// Returns the puts that `Options::journal` selects, in the order in which they took effect.
    pub fn puts(&self) -> Vec<PutRecord> {
        self.front.journal.puts()
    }

    /// Returns the faults, which can be changed while the server runs.
    pub fn faults(&self) -> &Arc<Faults> {
        &self.front.faults
    }

    /// Accepts no more connections, lets open requests end for a few seconds, then resets the rest.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.connections.close();
        if tokio::time::timeout(DRAIN, self.connections.wait())
            .await
            .is_err()
        {
            self.kill.cancel();
            self.connections.wait().await;
        }
    }
}

/// Opens the storage and creates its buckets.
fn open_storage(options: &Options) -> Result<Arc<Storage>, Error> {
    let storage = Arc::new(Storage::open(options.dir.clone())?);
    for name in &options.buckets {
        if !s3s::path::check_bucket_name(name) {
            return Err(Error::BucketName { name: name.clone() });
        }
        storage.create_bucket(name)?;
    }
    Ok(storage)
}

fn build_front(options: &Options) -> Result<Front, Error> {
    let storage = open_storage(options)?;
    let order = if options.unordered_list {
        Order::Shuffled(options.seed)
    } else {
        Order::Sorted
    };
    let mut service = S3ServiceBuilder::new(Api {
        storage: Arc::clone(&storage),
        order,
        max_body_bytes: options.max_body_bytes,
        checks_early: options.checks_early,
    });
    let policies = Policies::read(&options.policies)?;
    service.set_auth(Keys {
        access: options.access_key.clone(),
        policies: policies.clone(),
        secret: options.secret_key.clone().into(),
    });
    service.set_access(policies);
    service.set_host(Hosts);
    // Separate generators: switching latency on does not change which requests fail.
    Ok(Front {
        s3: service.build(),
        storage,
        faults: Arc::new(Faults::new(
            options.faults.clone().unwrap_or_default(),
            StdRng::seed_from_u64(options.seed),
        )),
        counters: Counters::default(),
        journal: Journal::new(options.journal.clone()),
        latency: options.latency,
        rng: Mutex::new(StdRng::seed_from_u64(options.seed ^ 0x6c61_7465_6e63_7900)),
        wrong_bytes: Mutex::new(StdRng::seed_from_u64(options.seed ^ 0x6c69_6573)),
        requests: AtomicU64::new(1),
    })
}

/// Returns the accepted keys.
struct Keys {
    access: String,
    policies: Policies,
    secret: SecretKey,
}

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if access_key == self.access || self.policies.knows(access_key) {
            return Ok(self.secret.clone());
        }
        Err(s3_error!(
            InvalidAccessKeyId,
            "The access key is not the one that this server was started with."
        ))
    }
}

/// Parses a host: `bucket.localhost` is virtual-hosted style; every other name is the server's own.
struct Hosts;

impl S3Host for Hosts {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let virtual_host = VirtualHost::new(host);
        Ok(match bucket_of_host(host) {
            Some(bucket) => virtual_host.with_bucket(bucket),
            None => virtual_host,
        })
    }
}

struct Acceptor {
    front: Arc<Front>,
    bytes_per_second: Option<u64>,
    stop: CancellationToken,
    kill: CancellationToken,
    connections: TaskTracker,
}

impl Acceptor {
    async fn run(self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.kill.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) if self.front.faults.is_down() => abort(&stream),
                Ok((stream, _)) => {
                    let (front, stop, cut) = (
                        Arc::clone(&self.front),
                        self.stop.clone(),
                        self.kill.child_token(),
                    );
                    let connection = Connection {
                        front,
                        cut,
                        spoiled: Arc::default(),
                    };
                    let link = Link::new(stream, self.bytes_per_second);
                    self.connections.spawn(serve(link, connection, stop));
                }
                Err(error) => {
                    // The process is probably out of file descriptors; others may be closed
                    // meanwhile.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// Serves one connection until the client closes it, the server stops, or a fault resets it.
async fn serve(link: Link, connection: Connection, stop: CancellationToken) {
    if let Err(error) = link.stream().set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let cut = connection.cut.clone();
    let mut builder = http1::Builder::new();
    let mut served = builder
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(link), connection);
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            () = cut.cancelled() => break,
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                std::pin::Pin::new(&mut served).graceful_shutdown();
            }
            result = &mut served => {
                if let Err(error) = result {
                    tracing::debug!(%error, "a connection ended with an error");
                }
                return;
            }
        }
    }
    abort(served.into_parts().io.inner().stream());
}

/// Resets a connection when it is closed, as a crashed server or a broken path would.
fn abort(stream: &TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::debug!(%error, "cannot reset a connection");
    }
}

#[cfg(test)]
mod tests;
