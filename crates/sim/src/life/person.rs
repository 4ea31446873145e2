//! Somebody who commits administrative entries by command, trying again for as long as the store
//! fails; and the people of a world.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::RequestId;
use batchweave_core::manifest::entry::{JobClosed, QuarantineLifted, Quarantined};
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_log::reclaim::ReclaimError;
use batchweave_log::{Log, LogError};
use batchweave_store::Store;

use super::plan::Deed;
use super::{RECLAIMER, reclaimer};
use crate::actor::{Actor, Nature};
use crate::draw::Draw;
use crate::world::forward::options;
use crate::world::run::Shared;

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

    pub(super) fn with(shared: &Arc<Shared>, name: &str, nature: Nature) -> Self {
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

    pub(super) fn chance(&self, per_mille: u32) -> bool {
        self.actor.draw(|draw| draw.chance(per_mille))
    }

    pub(crate) async fn log(&self) -> Result<Log, LogError> {
        let options = options(&self.shared, &self.actor, false);
        Log::open(Arc::clone(&self.store), &options).await
    }

    /// Commits what `make` builds; the state after it, or none when the rules refuse it.
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

    /// Does what people do, one after the other.
    pub(super) async fn act(self, mut deeds: Vec<(Duration, Deed)>) {
        deeds.sort_by_key(|(at, _)| *at);
        for (at, deed) in deeds {
            self.shared.store.time.sleep_until(at).await;
            let request = RequestId(self.bytes());
            match deed {
                Deed::Close(number) => self.close(request, number).await,
                Deed::ReclaimTo(share) => self.reclaim_to(share).await,
                Deed::Quarantine(share, count) => {
                    let make = |m: &Manifest| {
                        let first = m.next_step() * share / 1000;
                        Entry::Quarantined(Quarantined {
                            request,
                            first,
                            last: first + count - 1,
                            reason: "a spike".to_owned(),
                        })
                    };
                    self.commit(make).await;
                }
                Deed::Lift => self.lift(request).await,
            }
        }
    }

    /// Whichever incarnation is open, once, whatever comes after.
    async fn close(&self, request: RequestId, number: u32) {
        let job = super::name(number);
        let mut opened = None;
        while opened.is_none() {
            match self.log().await {
                Ok(log) => opened = Some(log.manifest().jobs().get(&job).map(|j| j.opened)),
                Err(_) => self.sleep(Duration::from_millis(500)).await,
            }
        }
        if let Some(Some(opened)) = opened {
            let entry = Entry::JobClosed(JobClosed {
                request,
                job,
                opened,
                reason: "a person says so".to_owned(),
            });
            self.commit(|_| entry.clone()).await;
        }
    }

    /// `reclaim --to`: one try, unless the store fails; a refusal is an answer.
    async fn reclaim_to(&self, share: u64) {
        let by_hand = format!("{RECLAIMER}-by-hand");
        let hand = Self::with(&self.shared, &by_hand, Nature::default());
        loop {
            match reclaimer::once(&hand, |head| Some(head * share / 1000)).await {
                Err(ReclaimError::Log(e)) if self.shared.may_pass(&e) => {
                    self.sleep(Duration::from_millis(500)).await;
                }
                Err(ReclaimError::Asked(asked)) => {
                    let text = format!("is refused: {asked}");
                    return self.shared.store.note(&self.actor, text);
                }
                Err(e) => return reclaimer::found(self, &e),
                Ok(()) => return,
            }
        }
    }

    async fn lift(&self, request: RequestId) {
        let Ok(log) = self.log().await else {
            return;
        };
        let newest = log
            .manifest()
            .quarantines()
            .iter()
            .rfind(|q| q.lifted.is_none());
        if let Some(quarantine) = newest.map(|q| q.id) {
            let entry = Entry::QuarantineLifted(QuarantineLifted {
                request,
                quarantine,
            });
            self.commit(|_| entry.clone()).await;
        }
    }
}
