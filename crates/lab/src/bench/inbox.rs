//! `bench inbox`: rows per second of a writer of an inbox, and the time from `put` to the trainer. Writers and trainers
//! are Python, so Python measures, with the daemons that the package finds.

use std::path::PathBuf;

use clap::Args;

use super::python;
use batchweave_console::CliError;

const MODULE: &str = "batchweave.bench.inbox";

#[derive(Debug, Clone, Args)]
pub(crate) struct InboxArgs {
    /// The inbox: a folder or an s3:// URL, in which the files stay; without it `dev-s3` with the latency of S3 Standard
    #[arg(value_name = "LOCATION")]
    location: Option<String>,
    /// Python with the batchweave[inbox] package
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Rows of 1 kB that the throughput is measured with
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    rows: u32,
    /// Rows that the latency is measured with
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    samples: u32,
}

/// Runs the measurement and returns its output: one JSON object with `json`, else a table.
pub(crate) async fn measure(args: &InboxArgs, json: bool) -> Result<String, CliError> {
    let folder = tempfile::tempdir()?;
    let (mut server, mut env) = (None, Vec::new());
    let location = if let Some(location) = &args.location {
        location.clone()
    } else {
        let (started, bucket) = python::slow_server(folder.path(), &[]).await?;
        env.clone_from(&started.env);
        server = Some(started);
        format!("s3://{bucket}/inbox")
    };
    let (rows, samples) = (args.rows.to_string(), args.samples.to_string());
    let mut words = vec![
        location,
        "--rows".to_owned(),
        rows,
        "--samples".to_owned(),
        samples,
    ];
    if json {
        words.push("--json".to_owned());
    }
    let report = python::report(&args.python, MODULE, &words, &env, json).await;
    // It lives as long as the measurement.
    drop(server);
    report
}

#[cfg(test)]
mod tests {
    use super::super::python::tests::program;
    use super::*;

    #[tokio::test]
    async fn the_measurement_is_started_and_its_report_passed_on() {
        let (_folder, python) = program(r#"echo "{\"arguments\": \"$*\"}""#);
        let args = InboxArgs {
            location: Some("/data/inbox".to_owned()),
            python,
            rows: 200,
            samples: 30,
        };
        let json = measure(&args, true).await.unwrap();
        let words = "-m batchweave.bench.inbox /data/inbox --rows 200 --samples 30 --json";
        assert_eq!(json, format!("{{\"arguments\": \"{words}\"}}\n"));
    }
}
