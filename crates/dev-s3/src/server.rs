//! The server: options, the socket, its connections and how it stops.

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
use crate::journal::{Deed, Journal};
use crate::link::Link;
use crate::op::bucket_of_host;
use crate::policy::{Policies, PolicyArg};
use crate::stats::{Counters, Stats};
use crate::storage::{Order, Storage};
use crate::{Error, FaultSpec, LatencyProfile};

/// How a server is to be started. `Options::default()` is what tests want: a free port, in memory,
/// no latency, no faults, one bucket named `batchweave`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where objects are kept; `None` keeps them in memory.
    pub dir: Option<PathBuf>,
    /// How long requests take.
    pub latency: LatencyProfile,
    /// Which requests fail at random.
    pub faults: Option<FaultSpec>,
    /// Seed of latency, faults and the order of unordered listings.
    pub seed: u64,
    /// Bytes per second of each connection in each direction; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// List keys in a useless order, as S3 Express does.
    pub unordered_list: bool,
    /// The access key that clients sign with.
    pub access_key: String,
    /// The secret of that key.
    pub secret_key: String,
    /// Buckets to create.
    pub buckets: Vec<String>,
    /// Further access keys, each bounded by a policy; the secret is the same.
    pub policies: Vec<PolicyArg>,
    /// Largest body and largest object, in bytes; a body is in memory while it arrives.
    pub max_body_bytes: usize,
    /// Against the contract: conditional puts look at the key when their head has come, and write when
    /// their body has. Tests of the start-up probe need such a store.
    pub looks_first: bool,
    /// Puts of keys that contain this text are noted; see [`Server::deeds`].
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
            looks_first: false,
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

/// How long open requests may go on after `shutdown`.
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

    /// The URL to give to clients as their endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counts since the start.
    pub fn stats(&self) -> Stats {
        self.front.counters.snapshot()
    }

    /// The puts that `Options::journal` asked for, in the order in which they took effect.
    pub fn deeds(&self) -> Vec<Deed> {
        self.front.journal.deeds()
    }

    /// What fails, to be changed while the server runs.
    pub fn faults(&self) -> &Faults {
        &self.front.faults
    }

    /// Takes no more connections, lets open requests end for a few seconds, then cuts what is left.
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

fn build_front(options: &Options) -> Result<Front, Error> {
    let storage = Arc::new(Storage::open(options.dir.clone())?);
    for name in &options.buckets {
        if !s3s::path::check_bucket_name(name) {
            return Err(Error::BucketName { name: name.clone() });
        }
        storage.create_bucket(name)?;
    }
    let order = if options.unordered_list {
        Order::Shuffled(options.seed)
    } else {
        Order::Sorted
    };
    let mut service = S3ServiceBuilder::new(Api {
        storage,
        order,
        max_body_bytes: options.max_body_bytes,
        looks_first: options.looks_first,
    });
    let policies = Policies::read(&options.policies)?;
    service.set_auth(Keys {
        access: options.access_key.clone(),
        policies: policies.clone(),
        secret: options.secret_key.clone().into(),
    });
    service.set_access(policies);
    service.set_host(Hosts);
    // A generator each, so that switching latency on does not change which requests fail.
    Ok(Front {
        s3: service.build(),
        faults: Faults::new(
            options.faults.clone().unwrap_or_default(),
            StdRng::seed_from_u64(options.seed),
        ),
        counters: Counters::default(),
        journal: Journal::new(options.journal.clone()),
        latency: options.latency,
        rng: Mutex::new(StdRng::seed_from_u64(options.seed ^ 0x6c61_7465_6e63_7900)),
        lies: Mutex::new(StdRng::seed_from_u64(options.seed ^ 0x6c69_6573)),
        requests: AtomicU64::new(1),
    })
}

/// The keys that are accepted.
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

/// `bucket.localhost` is virtual-hosted style; every other name is the server's own.
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
                    // Out of file descriptors, mostly; others may be closed meanwhile.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// Serves one connection until the client leaves, the server stops, or a fault cuts it.
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

/// Makes the close that follows a reset, as a crashed server or a broken path would.
fn abort(stream: &TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::debug!(%error, "cannot reset a connection");
    }
}

#[cfg(test)]
mod tests;
