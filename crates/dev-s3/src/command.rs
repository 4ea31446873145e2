//! `batchweave dev-s3`: the server on the command line.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};

use crate::api::REGION;
use crate::policy::PolicyArg;
use crate::{Error, FaultSpec, LatencyProfile, Options, Server};

/// The arguments of `batchweave dev-s3`.
#[derive(Debug, Clone, clap::Args)]
pub struct DevS3Args {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9000")]
    pub listen: SocketAddr,
    /// Folder to keep objects in; without it they are in memory and end with the server
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Imitate the latency of a store: none, s3-standard or s3-express
    #[arg(long, value_name = "PROFILE", default_value_t = LatencyProfile::None)]
    pub latency: LatencyProfile,
    /// Make requests fail: FAULT=CHANCE or KIND.FAULT=CHANCE, separated by commas. Faults: error
    /// (500), slow (503), conflict (409), stall, reset, lost (done, but the answer is lost), and for
    /// reads flip (one bit is wrong), short, long (one byte less or more), spoil (flips in all reads
    /// of this connection from now on), foreign (another object's bytes), absent (404), rotate (its end comes first). Kinds: get, head, put, delete, list, part, multipart, bucket
    #[arg(long, value_name = "SPEC")]
    pub faults: Option<FaultSpec>,
    /// KiB per second that each connection carries in each direction; without it, no limit
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub link_kib: Option<u64>,
    /// Seed of latency, faults and listing order; drawn and printed if not given
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// List keys in a useless order, as S3 Express does
    #[arg(long)]
    pub unordered_list: bool,
    /// Access key that clients must sign with
    #[arg(long, value_name = "KEY", default_value = "batchweave")]
    pub access_key: String,
    /// Secret of the access key
    #[arg(long, value_name = "SECRET", default_value = "batchweave-dev-secret")]
    pub secret_key: String,
    /// ACCESS_KEY=FILE: another key that clients may sign with, with the same secret, and the IAM policy
    /// that bounds what they may do; may be repeated
    #[arg(long = "policy", value_name = "KEY=FILE")]
    pub policies: Vec<PolicyArg>,
    /// Bucket to create at the start; may be repeated
    #[arg(long = "bucket", value_name = "NAME", default_value = "batchweave")]
    pub buckets: Vec<String>,
    /// Largest object in MiB, at least 1; each body is held in memory while it arrives
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub max_object_mib: u64,
    /// Print one JSON object instead of text when the server is ready
    #[arg(long)]
    pub json: bool,
}

/// Runs the server until SIGINT or SIGTERM.
pub async fn run(args: DevS3Args) -> Result<(), Error> {
    let failed = |source| Error::Signals { source };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let options = options(&args);
    let server = Server::start(options.clone()).await?;
    let text = if args.json {
        ready_json(&server, &options)
    } else {
        banner(&server, &options)
    };
    say(&text);
    tokio::select! {
        biased;
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    let stats = server.stats();
    server.shutdown().await;
    if !args.json {
        say(&format!("stopped after {} requests", stats.total()));
    }
    Ok(())
}

/// Converts the arguments to the server's options.
fn options(args: &DevS3Args) -> Options {
    Options {
        listen: args.listen,
        dir: args.dir.clone(),
        latency: args.latency,
        faults: args.faults.clone(),
        seed: args
            .seed
            .unwrap_or_else(|| u64::from(rand::random::<u32>())),
        bytes_per_second: args.link_kib.map(|kib| kib * 1024),
        unordered_list: args.unordered_list,
        access_key: args.access_key.clone(),
        secret_key: args.secret_key.clone(),
        buckets: args.buckets.clone(),
        policies: args.policies.clone(),
        checks_early: false,
        max_body_bytes: usize::try_from(args.max_object_mib << 20).unwrap_or(usize::MAX),
        journal: None,
    }
}

/// Prints a line; the server continues when standard output is closed.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn ready_json(server: &Server, options: &Options) -> String {
    serde_json::json!({
        "endpoint": server.endpoint(),
        "access_key": options.access_key,
        "secret_key": options.secret_key,
        "region": REGION,
        "buckets": options.buckets,
        "seed": options.seed,
        "pid": std::process::id(),
    })
    .to_string()
}

fn banner(server: &Server, options: &Options) -> String {
    let place = match &options.dir {
        Some(dir) => format!("in {} (unsynced)", dir.display()),
        None => "in memory; they end with this server".to_owned(),
    };
    let faults = options
        .faults
        .as_ref()
        .map_or_else(|| "none".to_owned(), ToString::to_string);
    format!(
        "batchweave dev-s3: an S3 server for tests, demos and laptops. Not for production: nothing is
synced to disk, nothing is replicated, and the credentials below are public.

  endpoint  {endpoint}
  buckets   {buckets}
  objects   {place}
  latency   {latency}   faults {faults}   link {link}   seed {seed}

In the shell of a client:

  export AWS_ENDPOINT_URL={endpoint}
  export AWS_ACCESS_KEY_ID={access}
  export AWS_SECRET_ACCESS_KEY={secret}
  export AWS_REGION={REGION}

Stop it with Ctrl-C.",
        endpoint = server.endpoint(),
        buckets = options.buckets.join(", "),
        latency = options.latency,
        link = options.bytes_per_second.map_or_else(
            || "unlimited".to_owned(),
            |rate| format!("{} KiB/s", rate / 1024)
        ),
        seed = options.seed,
        access = options.access_key,
        secret = options.secret_key,
    )
}
