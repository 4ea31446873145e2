//! SIGHUP reloads the configuration. The log level takes effect immediately; other changed keys are named
//! as waiting for a restart. A broken file changes nothing.

use std::path::{Path, PathBuf};

use tokio::signal::unix::{SignalKind, signal};

use crate::config::{self, Config, Overrides};
use crate::notify::Notifier;
use crate::telemetry::{self, LogConfig};

/// Keys that take effect on a reload.
const LIVE: [&str; 1] = ["log.level"];

/// Reloads at every SIGHUP, until the process ends.
pub(crate) fn on_hangup<C: Config + Send + 'static>(
    path: PathBuf,
    overrides: Overrides,
    running: &C,
    log: fn(&C) -> &LogConfig,
) -> std::io::Result<()> {
    let mut hangups = signal(SignalKind::hangup())?;
    let running = values(running);
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let notifier = Notifier::from_env().ok().flatten();
            let notify = |text: &str| {
                if let Some(notifier) = &notifier {
                    notifier.notify(text);
                }
            };
            notify("RELOADING=1");
            match reload(&path, &overrides, &running, log) {
                Ok(report) => tracing::info!("{report}"),
                Err(why) => {
                    tracing::error!("cannot reload, keeping the old configuration: {why}");
                }
            }
            notify("READY=1");
        }
    });
    Ok(())
}

fn reload<C: Config>(
    path: &Path,
    overrides: &Overrides,
    running: &toml::Table,
    log: fn(&C) -> &LogConfig,
) -> Result<String, String> {
    // Opening a pipe would wait for a writer.
    if std::fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return Err(format!(
            "{} is not a regular file: it cannot be read again",
            path.display()
        ));
    }
    let new: C = config::load_with(path, overrides).map_err(|why| why.to_string())?;
    telemetry::change(log(&new));
    let mut changed = Vec::new();
    differences("", running, &values(&new), &mut changed);
    let waiting: Vec<String> = changed
        .into_iter()
        .filter(|key| !LIVE.contains(&key.as_str()))
        .collect();
    let level = &log(&new).level;
    Ok(if waiting.is_empty() {
        format!("reloaded; log.level is {level}")
    } else {
        format!(
            "reloaded; log.level is {level}; these keys take effect at the next restart: {}",
            waiting.join(", ")
        )
    })
}

fn values<C: Config>(config: &C) -> toml::Table {
    // A configuration parsed from TOML can be written as TOML.
    toml::Table::try_from(config).unwrap_or_default()
}

fn differences(at: &str, old: &toml::Table, new: &toml::Table, found: &mut Vec<String>) {
    let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let name = format!("{at}{key}");
        match (old.get(key), new.get(key)) {
            (Some(toml::Value::Table(old)), Some(toml::Value::Table(new))) => {
                differences(&format!("{name}."), old, new, found);
            }
            (old, new) if old != new => found.push(name),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(default)]
    struct Test {
        size: u64,
        log: LogConfig,
    }

    impl Config for Test {
        fn check(&self) -> Vec<config::Problem> {
            self.log.check()
        }
    }

    #[test]
    fn a_pipe_does_not_block_the_reload() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let running = values(&Test::default());
        let why = reload::<Test>(&path, &Overrides::default(), &running, |c| &c.log).unwrap_err();
        assert!(why.contains("x.toml is not a regular file"), "{why}");
    }

    #[test]
    fn a_reload_names_the_keys_that_wait_and_a_broken_file_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        let running = values(&Test::default());
        let reload = |text: &str| {
            std::fs::write(&path, text).unwrap();
            reload::<Test>(&path, &Overrides::default(), &running, |c| &c.log)
        };
        let report = reload("size = 3\n[log]\nlevel = \"debug\"").unwrap();
        assert!(
            report.contains("log.level is debug") && report.ends_with("restart: size"),
            "{report}"
        );
        assert!(
            !reload("[log]\nlevel = \"debug\"")
                .unwrap()
                .contains("restart")
        );
        let why = reload("size = \"many\"").unwrap_err();
        assert!(why.contains("size"), "{why}");
    }
}
