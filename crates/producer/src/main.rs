//! `batchweave-producer --config F`: a producer daemon.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use batchweave_daemon::{Exit, config, shutdown, telemetry};
use batchweave_producer::Outcome;
use batchweave_producer::config::ProducerConfig;
use clap::Parser;

/// Tokenizes documents, packs them into global batches and commits these to a stream in an object
/// store. A restart goes on at the last commit, exactly.
#[derive(Debug, Parser)]
#[command(name = "batchweave-producer", version, after_help = EXIT_CODES)]
struct Args {
    /// Configuration file; config/producer.toml lists every key.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and exit.
    #[arg(long)]
    check: bool,
}

const EXIT_CODES: &str = "Exit codes: 0 finished, or stopped on request, 1 failure, 64 configuration, 65 input, 69 store \
unavailable, 73 store or stream refused, 75 fenced by a newer instance (do not restart), 76 stored objects break the protocol.";

fn main() -> Exit {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(why) => {
            let asked = !why.use_stderr();
            // Nothing to do about a closed terminal.
            let _ = why.print();
            return if asked { Exit::Ok } else { Exit::Config };
        }
    };
    let config: ProducerConfig = match config::load(&args.config) {
        Ok(config) => config,
        Err(why) => return fail(&why, Exit::Config),
    };
    if args.check {
        println!("{}: ok", args.config.display());
        return Exit::Ok;
    }
    telemetry::init(&config.log);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(why) => return fail(&format!("no runtime: {why}"), Exit::Failure),
    };
    let exit = runtime.block_on(produce(config));
    // What still reads or tokenizes has nowhere to put its results.
    runtime.shutdown_background();
    exit
}

async fn produce(config: ProducerConfig) -> Exit {
    let stop = match shutdown::on_signals() {
        Ok(stop) => stop,
        Err(why) => return fail(&format!("no signal handlers: {why}"), Exit::Failure),
    };
    match batchweave_producer::run(config, stop).await {
        Ok(Outcome::Finished { batches }) => {
            tracing::info!(batches, "finished: all input is in the stream")
        }
        Ok(Outcome::Stopped { batches }) => {
            tracing::info!(batches, "stopped; a restart goes on from here")
        }
        Ok(Outcome::Sealed) => tracing::info!("the stream has ended or is sealed; nothing to do"),
        Err(why) => return fail(&why, why.exit()),
    }
    Exit::Ok
}

fn fail(why: &dyn std::fmt::Display, exit: Exit) -> Exit {
    eprintln!("batchweave-producer: {why}");
    exit
}
