//! `bench freshness`: the time from the commit of a batch to the return of a waiting rank's `next()`. Trainers are Python,
//! so Python measures, with the daemons that the package finds.

use std::path::PathBuf;

use clap::Args;

use super::python;
use batchweave_console::CliError;

const MODULE: &str = "batchweave.bench.freshness";

#[derive(Debug, Clone, Args)]
pub(crate) struct FreshnessArgs {
    /// A folder or an s3:// URL, in which the files stay; without it a temporary folder, and then `dev-s3` with the
    /// latency of S3 Standard
    #[arg(value_name = "LOCATION")]
    location: Option<String>,
    /// Python with the batchweave[inbox] package
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Commits measured per store
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    samples: u32,
}

/// Runs the measurement and returns its output: one JSON object with `json`, else a table.
pub(crate) async fn measure(args: &FreshnessArgs, json: bool) -> Result<String, CliError> {
    let folder = tempfile::tempdir()?;
    let (mut server, mut env) = (None, Vec::new());
    let mut words = Vec::new();
    if let Some(location) = &args.location {
        words.push(location.clone());
    } else {
        let at = |name: &str| folder.path().join(name).display().to_string();
        // Python watches the files of the server, in which a commit appears once it is durable.
        let objects = at("s3");
        let more = ["--dir", &objects];
        let (started, bucket) = python::slow_server(folder.path(), &more).await?;
        env.clone_from(&started.env);
        server = Some(started);
        let remote = format!("s3://{bucket}/freshness");
        let objects = format!("{objects}/{bucket}");
        words.extend([at("freshness"), remote, "--objects".to_owned(), objects]);
    }
    words.extend(["--samples".to_owned(), args.samples.to_string()]);
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
        let args = FreshnessArgs {
            location: Some("/data/fresh".to_owned()),
            python,
            samples: 30,
        };
        let json = measure(&args, true).await.unwrap();
        let words = "-m batchweave.bench.freshness /data/fresh --samples 30 --json";
        assert_eq!(json, format!("{{\"arguments\": \"{words}\"}}\n"));
        assert!(!measure(&args, false).await.unwrap().contains("--json"));
    }
}
