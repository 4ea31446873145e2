//! `bench upload`: the store's uploads compared with plain HTTP puts of the same bytes to the same server,
//! which discards them.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use batchweave_store::{AccessKeys, OpenOptions, Store};
use bytes::Bytes;
use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;

use super::super::cpu::median;
use super::{mb, sink};
use crate::error::bench_error;
use batchweave_console::CliError;

#[derive(Debug, Clone, Args)]
pub(crate) struct UploadArgs {
    /// Size of each object
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=31))]
    object_mib: u64,
    /// Objects in each round
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    objects: u64,
    /// Objects uploaded at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=256))]
    concurrency: u64,
    /// Measurements of each side, alternating; the report has medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct UploadReport {
    object_bytes: u64,
    objects: u64,
    concurrency: u64,
    limit_bytes_per_second: f64,
    bytes_per_second: f64,
    ratio_to_plain_put: f64,
}

pub(crate) async fn measure(args: &UploadArgs) -> Result<UploadReport, CliError> {
    let address = sink::start()?;
    let options = OpenOptions {
        endpoint: Some(format!("http://{address}")),
        region: Some("us-east-1".to_owned()),
        keys: Some(AccessKeys {
            id: "bench".to_owned(),
            secret: "bench".to_owned(),
        }),
        ..OpenOptions::default()
    };
    let store = batchweave_store::open("s3://bucket/bench", &options).await?;
    let body = Bytes::from(vec![0x5a; (args.object_mib << 20) as usize]);
    let total = (args.objects * (args.object_mib << 20)) as f64;
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let (plain, again) = (args.clone(), body.clone());
        let plain = tokio::task::spawn_blocking(move || plain_puts(&plain, address, &again))
            .await
            .map_err(bench_error)??;
        rounds.push((plain, uploads(args, &store, &body).await?));
    }
    Ok(UploadReport {
        object_bytes: body.len() as u64,
        objects: args.objects,
        concurrency: args.concurrency,
        limit_bytes_per_second: median(&rounds, |(plain, _)| total / plain),
        bytes_per_second: median(&rounds, |(_, ours)| total / ours),
        ratio_to_plain_put: median(&rounds, |(plain, ours)| plain / ours),
    })
}

/// Returns the wall time in seconds.
async fn uploads(args: &UploadArgs, store: &Arc<dyn Store>, body: &Bytes) -> Result<f64, CliError> {
    let began = Instant::now();
    let upload = |n: u64| {
        let (store, body) = (Arc::clone(store), body.clone());
        let task = tokio::spawn(async move { store.upload(&format!("data/{n}"), body).await });
        async move { task.await.map_err(bench_error)?.map_err(CliError::from) }
    };
    let uploads = stream::iter(0..args.objects)
        .map(upload)
        .buffer_unordered(args.concurrency as usize);
    let done: Vec<_> = uploads.try_collect().await?;
    if done.len() as u64 != args.objects {
        return Err(bench_error("an upload is missing"));
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Returns the wall time in seconds.
fn plain_puts(
    args: &UploadArgs,
    address: std::net::SocketAddr,
    body: &Bytes,
) -> Result<f64, CliError> {
    let began = Instant::now();
    let connection = |n: u64| {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mine = (n..args.objects).step_by(args.concurrency as usize);
        for _ in mine {
            sink::put(&mut stream, body)?;
        }
        std::io::Result::Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..args.concurrency)
            .map(|n| scope.spawn(move || connection(n)))
            .collect();
        all.into_iter().try_for_each(|thread| {
            let done = thread.join().map_err(|_| bench_error("a thread died"))?;
            done.map_err(CliError::from)
        })
    })?;
    Ok(began.elapsed().as_secs_f64())
}

impl UploadReport {
    pub(crate) fn text(&self) -> String {
        format!(
            "{} objects of {} MiB, {} in flight\n\
             plain HTTP puts  {}\n\
             uploads          {}, {:.2} of it\n",
            self.objects,
            self.object_bytes >> 20,
            self.concurrency,
            mb(self.limit_bytes_per_second),
            mb(self.bytes_per_second),
            self.ratio_to_plain_put,
        )
    }
}
