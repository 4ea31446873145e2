//! The surroundings of a producer in its daemon.

use std::sync::Arc;

use batchweave_daemon::health::Health;
use batchweave_store::Store;
use prometheus::Registry;
use tokio::sync::OnceCell;

use crate::config::ProducerConfig;
use crate::error::RunError;
use crate::flow_control::HeldByJob;
use crate::metrics::Metrics;
use crate::transform::DocumentTransform;
use crate::worker::Worker;

/// The tokenizer and template, loaded once for all producers of a daemon.
pub(crate) type SharedTransform = Arc<OnceCell<Arc<DocumentTransform>>>;

/// The surroundings of a producer in its daemon.
pub(crate) struct Site {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Health,
    pub(crate) transform: SharedTransform,
    pub(crate) held: HeldByJob,
    /// Whether it is the only producer of its daemon.
    pub(crate) alone: bool,
}

impl Site {
    /// Returns the site of the only producer of a daemon.
    pub(crate) fn alone(
        store: Arc<dyn Store>,
        health: Health,
        registry: &Registry,
    ) -> prometheus::Result<Self> {
        Ok(Self {
            store,
            metrics: Arc::new(Metrics::new(registry)?),
            health,
            transform: SharedTransform::default(),
            held: HeldByJob::default(),
            alone: true,
        })
    }

    /// Returns the name that tells the producer from others of its daemon.
    pub(crate) fn lane<'c>(&self, config: &'c ProducerConfig) -> Option<&'c str> {
        (!self.alone).then_some(config.producer.name.as_str())
    }

    /// Returns the tokenizer and template; the first caller loads them.
    pub(crate) async fn transform(
        &self,
        config: &ProducerConfig,
    ) -> Result<Arc<DocumentTransform>, RunError> {
        let load = async || {
            let loaded = config.clone();
            let worker = Worker::start("tokenizer", move || DocumentTransform::new(&loaded))?;
            Ok::<_, RunError>(Arc::new(worker.join().await??))
        };
        self.transform.get_or_try_init(load).await.cloned()
    }
}
