//! `batchweave-consumer --config F`: the consumer daemon of one node.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use batchweave_consumer::config::ConsumerConfig;
use batchweave_daemon::{Exit, config, shutdown, telemetry};
use clap::Parser;

/// Serves the training ranks of this node: follows a stream's log, fetches their slices ahead of use
/// into shared memory, and hands them out over a Unix socket.
#[derive(Debug, Parser)]
#[command(name = "batchweave-consumer", version, after_help = EXIT_CODES)]
struct Args {
    /// Configuration file; config/consumer.toml lists every key.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and exit.
    #[arg(long)]
    check: bool,
}

const EXIT_CODES: &str = "Exit codes: 0 stopped on request, 1 failure, 64 configuration, socket or arena, \
69 store unavailable, 73 store or stream refused, 76 stored objects break the protocol; \
137 (killed) usually means that a memory limit was hit.";

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
    let config: ConsumerConfig = match config::load(&args.config) {
        Ok(config) => config,
        Err(why) => return fail(&why, Exit::Config),
    };
    if args.check {
        println!("{}: ok", args.config.display());
        return Exit::Ok;
    }
    telemetry::init(&config.log);
    match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime.block_on(serve(config)),
        Err(why) => fail(&format!("no runtime: {why}"), Exit::Failure),
    }
}

async fn serve(config: ConsumerConfig) -> Exit {
    let stop = match shutdown::on_signals() {
        Ok(stop) => stop,
        Err(why) => return fail(&format!("no signal handlers: {why}"), Exit::Failure),
    };
    match batchweave_consumer::run(config, stop).await {
        Ok(()) => Exit::Ok,
        Err(why) => fail(&why, why.exit()),
    }
}

fn fail(why: &dyn std::fmt::Display, exit: Exit) -> Exit {
    eprintln!("batchweave-consumer: {why}");
    exit
}
