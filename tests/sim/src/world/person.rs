//! A person or tool that commits administrative entries, and retries while the store fails.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::manifest::{Entry, Manifest};
use batchweave_log::{Log, LogError};
use batchweave_store::Store;

use super::forward::options;
use super::shared::Shared;
use crate::actor::{Actor, Nature};
use crate::draw::Draw;

/// A person, or a program that acts for one.
pub(crate) struct Person {
    pub(crate) shared: Arc<Shared>,
    pub(crate) actor: Arc<Actor>,
    pub(crate) store: Arc<dyn Store>,
}

impl Person {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        Self::with(shared, name, Nature::default())
    }

    pub(crate) fn with(shared: &Arc<Shared>, name: &str, nature: Nature) -> Self {
        let actor = shared.store.actor(name, nature);
        Self {
            shared: Arc::clone(shared),
            store: shared.store.handle(&actor),
            actor,
        }
    }

    pub(crate) async fn sleep(&self, time: Duration) {
        self.actor.sleep(time).await;
    }

    pub(crate) fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.actor.draw(Draw::seed)[..16]);
        bytes
    }

    pub(crate) fn chance(&self, per_mille: u32) -> bool {
        self.actor.draw(|draw| draw.chance(per_mille))
    }

    pub(crate) async fn log(&self) -> Result<Log, LogError> {
        let options = options(&self.shared, &self.actor, false);
        Log::open(Arc::clone(&self.store), &options).await
    }

    /// Commits the entry that `make` builds. Returns the state after it, or none if the rules
    /// refuse it.
    pub(crate) async fn commit(&self, make: impl Fn(&Manifest) -> Entry) -> Option<Manifest> {
        loop {
            let done = async {
                let mut log = self.log().await?;
                log.commit_entry(&self.actor.name, &make).await?;
                Ok(log.manifest().clone())
            };
            match done.await {
                Ok(manifest) => return Some(manifest),
                Err(e) if self.shared.may_pass(&e) => {
                    self.sleep(Duration::from_millis(500)).await;
                }
                Err(LogError::Void(void)) => {
                    let text = format!("is refused: {void}");
                    self.shared.store.note(&self.actor, text);
                    return None;
                }
                Err(e) => {
                    let text = format!("{}: {e}", self.actor.name);
                    self.shared.found("writer-error", self.actor.id, text);
                    return None;
                }
            }
        }
    }
}
