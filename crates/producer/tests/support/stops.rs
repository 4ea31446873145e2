//! Runs of a producer that stop in the middle.

use std::sync::Arc;
use std::time::Duration;

use batchweave_log::Log;
use batchweave_producer::config::ProducerConfig;
use batchweave_producer::{Outcome, RunError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::*;

impl World {
    /// Runs until the store does not answer request `n`, and then requests a stop.
    pub async fn run_until_silent(
        &self,
        config: ProducerConfig,
        n: u64,
    ) -> Result<Outcome, RunError> {
        let (silent, stop) = (Arc::new(Notify::new()), CancellationToken::new());
        let store = Tripwire::new(
            self.store.clone(),
            Instant::request(n),
            Trip::Die(silent.clone()),
        );
        let run = run_on(store, config, stop.clone());
        let ask = async {
            silent.notified().await;
            stop.cancel();
        };
        tokio::join!(run, ask).0
    }

    /// Runs and stops until more than `batches` are committed: how many requests that takes depends on the machine.
    pub async fn run_until_more_than(&self, batches: usize, mut config: ProducerConfig) {
        config.shutdown.deadline.0 = Duration::from_millis(50);
        for request in (40..).step_by(10) {
            let outcome = self
                .run_until_silent(config.clone(), request)
                .await
                .unwrap();
            assert!(matches!(outcome, Outcome::Stopped { .. }), "{outcome:?}");
            if self.payloads().await.len() > batches {
                return;
            }
        }
    }

    /// Opens the producer of `config`, and stops it before or soon after its first batch.
    pub async fn open_producer(&self, mut config: ProducerConfig) {
        config.shutdown.deadline.0 = Duration::from_millis(50);
        let name = config.producer.name.parse().unwrap();
        let opened = |log: &Log| log.manifest().producer(&name).is_some();
        for request in 1.. {
            let _ = self.run_until_silent(config.clone(), request).await;
            if self.log().await.as_ref().is_some_and(opened) {
                return;
            }
        }
    }
}
