//! A reader process: it follows the log and reads every step once, in order. After a failure of the
//! store it opens the log again and continues.

use std::sync::Arc;

use batchweave_log::{Located, Log, LogError};
use batchweave_store::Store;

use super::forward::options;
use super::shared::Shared;
use crate::actor::Actor;
use crate::evidence::Read;
use crate::plan::ReaderPlan;

pub(super) struct Reader {
    pub(super) shared: Arc<Shared>,
    pub(super) plan: ReaderPlan,
    pub(super) actor: Arc<Actor>,
    pub(super) store: Arc<dyn Store>,
}

impl Reader {
    /// Reads to the end of the stream, or to the head when all producers are done.
    pub(super) async fn run(self) -> Vec<Read> {
        self.actor.sleep(self.plan.starts).await;
        let mut reads = Vec::new();
        while let Err(error) = self.follow(&mut reads).await {
            if !self.shared.may_pass(&error) {
                let text = format!("{} stopped: {error}", self.actor.name);
                self.shared.found("reader-error", self.actor.id, text);
                break;
            }
            self.actor.sleep(self.plan.every).await;
        }
        reads
    }

    async fn follow(&self, reads: &mut Vec<Read>) -> Result<(), LogError> {
        let options = options(&self.shared, &self.actor, self.plan.writes);
        let mut log = Log::open(Arc::clone(&self.store), &options).await?;
        loop {
            let done = self.shared.done();
            log.catch_up().await?;
            loop {
                match log.locate(reads.len() as u64).await? {
                    Located::At(step) => reads.push(Read {
                        producer: step.producer.clone(),
                        seq: step.seq,
                        epoch: step.epoch,
                        version: step.version,
                        digest: step.tgb.digest,
                        head: log.manifest().next_version(),
                    }),
                    // A stream that has ended may be unsealed.
                    Located::NotYet | Located::Ended { .. } => break,
                    Located::Reclaimed { watermark } => {
                        let text = format!("watermark {watermark} although no reclaimer runs");
                        self.shared.found("prefix", self.actor.id, text);
                        return Ok(());
                    }
                }
            }
            if done {
                log.settle_snapshots().await;
                return Ok(());
            }
            self.actor.sleep(self.plan.every).await;
        }
    }
}
