//! The start and the end of a program that runs one command: its log, its errors and its exit code.

use std::fmt::Write as _;

use batchweave_daemon::Exit;
use batchweave_daemon::telemetry::{self, LogConfig};
use clap::error::ErrorKind;

use crate::error::CliError;
use crate::remedies;

/// Starts the log on standard error, filtered by `level` where RUST_LOG is not set.
pub fn init_log(level: &str) {
    telemetry::init(&LogConfig {
        level: level.into(),
        ..LogConfig::default()
    });
}

/// Prints the error of a verb, if there is one, and returns the exit code.
pub fn exit_of_result(result: Result<Exit, CliError>) -> Exit {
    exit_of_result_at(result, None)
}

/// As [`exit_of_result`]; commands in the error get the `store` that the command line named.
pub fn exit_of_result_at(result: Result<Exit, CliError>, store: Option<&str>) -> Exit {
    match result {
        Ok(exit) => exit,
        // The reader of our output has closed the pipe, as in `batchweave log | head`.
        Err(e) if e.is_closed_pipe() => Exit::Ok,
        Err(e) => {
            eprintln!("error: {}", remedies::runnable(&e.to_string(), store));
            e.exit()
        }
    }
}

/// Prints the help, version or error that parsing a command line ended with, and returns the exit code.
pub fn exit_of_parse_error(error: &clap::Error) -> Exit {
    let printed = match remedies::reworded(error) {
        Some(text) => {
            eprint!("{text}");
            Ok(())
        }
        None => error.print(),
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion if printed.is_ok() => Exit::Ok,
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Failure,
        _ => Exit::Config,
    }
}

/// Returns the table of exit codes that ends the help of a program.
pub fn exit_codes_help() -> String {
    let mut text = "Exit codes:".to_owned();
    for exit in Exit::ALL {
        let _ = write!(text, "\n  {:>2}  {}", exit.code(), exit.meaning());
    }
    text
}
