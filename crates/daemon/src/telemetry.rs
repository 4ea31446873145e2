//! Logs: text or JSON lines on standard error, filtered by the configured level or `RUST_LOG`.

use std::io::IsTerminal;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::Problem;
use crate::live_line::{self, LogWriter};
use crate::recent_messages::Keeper;

/// Shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The `[log]` table of a daemon's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogConfig {
    /// A level (`error` .. `trace`) or directives as in `RUST_LOG`, which wins when set.
    pub level: String,
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".into(),
            format: LogFormat::Text,
        }
    }
}

impl LogConfig {
    /// Returns the problems of this table, with keys below `log`.
    pub fn check(&self) -> Vec<Problem> {
        match EnvFilter::builder().parse(&self.level) {
            Ok(_) => Vec::new(),
            Err(why) => vec![Problem::new(
                "log.level",
                format!(
                    "invalid level `{}`: {why}; use error, warn, info, debug or trace",
                    self.level
                ),
            )],
        }
    }
}

/// Libraries whose warnings are tries that they repeat themselves; a final failure is an error of ours,
/// with its cause.
const QUIET: &str = "aws_config=error,aws_smithy_runtime=error,aws_sdk_s3=error";

/// The input of a presigned URL's signature contains the session token: it is never logged, whatever
/// level is configured.
const NEVER_TRACED: [&str; 2] = ["aws_sigv4=info", "aws_sigv4::http_request=info"];

/// Replaces the filter of a running subscriber.
type Change = Box<dyn Fn(EnvFilter) + Send + Sync>;

static CHANGE: OnceLock<Change> = OnceLock::new();
fn filter(config: &LogConfig) -> EnvFilter {
    let ours = || format!("{QUIET},{}", config.level);
    let directives = std::env::var("RUST_LOG").unwrap_or_else(|_| ours());
    let asked = EnvFilter::builder().parse_lossy(directives);
    let never = NEVER_TRACED.iter().filter_map(|d| d.parse().ok());
    never.fold(asked, EnvFilter::add_directive)
}

/// Starts logging for the process. A second call has no effect, so that tests may call it too.
pub fn init(config: &LogConfig) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(config))
        .with_writer(|| LogWriter)
        .with_ansi(std::io::stderr().is_terminal());
    let outcome = match config.format {
        LogFormat::Text => {
            let builder = builder.with_target(false).with_filter_reloading();
            let handle = builder.reload_handle();
            let change: Change = Box::new(move |filter| drop(handle.reload(filter)));
            let started = builder.finish().with(Keeper).try_init();
            started.map(|()| change)
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            let change: Change = Box::new(move |filter| drop(handle.reload(filter)));
            let started = builder.finish().with(Keeper).try_init();
            started.map(|()| change)
        }
    };
    if let Ok(change) = outcome {
        live_line::expect_text(config.format == LogFormat::Text);
        // Only the first call sets the handle.
        drop(CHANGE.set(change));
    } else {
        tracing::debug!("logging was already started");
    }
}

/// Applies another log level.
pub(crate) fn change(config: &LogConfig) {
    if let Some(change) = CHANGE.get() {
        change(filter(config));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_level_is_a_problem_with_its_key() {
        let config = LogConfig {
            level: "a=b=c".into(),
            format: LogFormat::Json,
        };
        assert_eq!(config.check()[0].key, "log.level");
        assert!(LogConfig::default().check().is_empty());
    }
}
