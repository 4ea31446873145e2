//! Resources that all tasks of the daemon share: the stream's parameters, the store, time, randomness and metrics.
//! None of them depends on the ranks.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::stream::StreamConfig;
use batchweave_store::{Backoff, Store, StoreError};
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::job::states::{Receipts, States};
use crate::job::values::Values;
use crate::metrics::Metrics;
use crate::store_health::StoreHealth;

/// How long writing an object is retried: as long as the log retries its reads.
pub(crate) const CREATE_TIMEOUT: Duration = Duration::from_secs(90);
const CREATE_PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest pause between attempts: an object is stored at most this late after the store recovers.
const CREATE_PAUSE_MAX: Duration = Duration::from_secs(3);

/// The shared parts of one run of the daemon.
pub(crate) struct Resources {
    pub(crate) stream: StreamConfig,
    /// The random id of this run.
    pub(crate) instance: [u8; 16],
    pub(crate) store: Arc<dyn Store>,
    pub(crate) store_health: Arc<StoreHealth>,
    pub(crate) context: Arc<Context>,
    pub(crate) metrics: Arc<Metrics>,
    /// The states of steps that ranks reported and no ledger has yet.
    pub(crate) states: Arc<States>,
    /// The losses that they reported and no object has yet.
    pub(crate) values: Arc<Values>,
    /// Cancelled when the daemon ends.
    pub(crate) stop: CancellationToken,
}

impl Resources {
    /// The name of this run of the daemon in keys and objects.
    pub(crate) fn node_name(&self) -> String {
        hex(&self.instance)
    }

    /// Confirms reports whose states are stored, once all objects of values below `number` are, too.
    pub(crate) fn states_stored(&self, receipts: Receipts, number: u64) {
        let confirmed = self.values.states_stored(number, receipts);
        self.states.stored(&confirmed);
    }

    /// Creates an object whose body does not depend on which daemon writes it; retries transient failures
    /// for `CREATE_TIMEOUT`.
    pub(crate) async fn create(&self, key: &str, body: Bytes) -> Result<(), StoreError> {
        let context = &self.context;
        let mut backoff = Backoff::new(CREATE_PAUSE_FIRST, CREATE_PAUSE_MAX);
        let began = context.now();
        loop {
            match self.store.create(key, body.clone()).await {
                Ok(_) => return Ok(()),
                Err(why) if context.since(began) < CREATE_TIMEOUT && why.kind.is_transient() => {
                    tracing::debug!(%why, "writing an object failed; retrying");
                }
                Err(why) => return Err(why),
            }
            context.sleep(context.jittered(backoff.pause())).await;
        }
    }
}

/// Returns the name under which log records name the daemon as their writer.
pub(crate) fn writer(instance: &[u8; 16]) -> String {
    format!("consumer-{}", &hex(instance)[..8])
}

/// Formats an id in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}
