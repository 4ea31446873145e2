//! `batchweave-producer --config F`: a producer daemon.

use batchweave_daemon::stages::STAGES;
use batchweave_daemon::survey::SURVEY;
use batchweave_daemon::{Exit, Failure, Program};
use tokio_util::sync::CancellationToken;

use crate::config::ProducerConfig;
use crate::{chat, check, configured_stages, run, survey};

const PROGRAM: Program = Program {
    name: "batchweave-producer",
    version: env!("CARGO_PKG_VERSION"),
    about: "Tokenizes documents, packs them into global batches and commits these to a stream in an object \
store. A restart continues at the last commit, exactly.",
    exit_codes: "Exit codes: 0 finished, or stopped on request, 1 failure, 64 configuration, 65 input, 69 store \
unavailable, 70 a fault of the program, 73 store or stream refused, 75 fenced by a newer instance (do not restart), 76 stored objects break the protocol.",
};

/// The word that prints the table of settings, which tests/py/generated_docs.py reads.
const SETTINGS: &str = "--settings";

/// Path of this program, valid also after its file was replaced by a newer version.
const ITSELF: &str = "/proc/self/exe";

/// Runs the daemon with this process's command line and returns its exit code.
pub fn main() -> Exit {
    // Internal, so the help does not show them.
    match std::env::args_os().nth(1) {
        Some(word) if word == chat::RENDER => {
            return chat::serve().map_or(Exit::Failure, |()| Exit::Ok);
        }
        Some(word) if word == SETTINGS => {
            print!("{}", ProducerConfig::described());
            return Exit::Ok;
        }
        Some(word) if word == SURVEY => {
            return survey::main(PROGRAM.name, std::env::args_os().skip(2).collect());
        }
        Some(word) if word == STAGES => {
            return configured_stages::main(PROGRAM.name, std::env::args_os().skip(2).collect());
        }
        _ => {}
    }
    PROGRAM.main(|config: &ProducerConfig| &config.log, check, produce)
}

async fn produce(mut config: ProducerConfig, stop: CancellationToken) -> Result<(), Failure> {
    config.chat.renderer = Some(ITSELF.into());
    // It logs how it ended.
    let outcome = run(config, stop).await;
    outcome
        .map(|_| ())
        .map_err(|why| Failure::new(&why, why.exit()))
}
