//! `bench read`: the time that a rank spends per batch between pieces of a trainer's work, which leave the client's
//! memory cold. Python measures, as for `bench handover`.

use std::path::PathBuf;

use clap::Args;

use super::python;
use batchweave_console::CliError;

const MODULE: &str = "batchweave.bench.read";

#[derive(Debug, Clone, Args)]
pub(crate) struct ReadArgs {
    /// Python with the batchweave package
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Number of rounds; each figure is their median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Calls of next() in each round, per size and length of work
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    calls: u32,
}

/// Runs the measurement and returns its output: one JSON object with `json`, else a table.
pub(crate) async fn measure(args: &ReadArgs, json: bool) -> Result<String, CliError> {
    python::of_calls(&args.python, MODULE, args.rounds, args.calls, json).await
}

#[cfg(test)]
mod tests {
    use super::super::python::tests::program;
    use super::*;

    #[tokio::test]
    async fn the_measurement_is_started_and_its_report_passed_on() {
        let (_folder, python) = program(r#"echo "{\"arguments\": \"$*\"}""#);
        let args = ReadArgs {
            python,
            rounds: 2,
            calls: 300,
        };
        let json = measure(&args, true).await.unwrap();
        let wanted = "{\"arguments\": \"-m batchweave.bench.read --rounds 2 --calls 300\"}\n";
        assert_eq!(json, wanted);
        assert!(measure(&args, false).await.unwrap().contains("--text"));
    }
}
