//! The people of a world: they close jobs, move the watermark, and quarantine steps.

use std::time::Duration;

use batchweave_core::ids::RequestId;
use batchweave_core::manifest::entry::{JobClosed, QuarantineLifted, Quarantined};
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_log::reclaim::ReclaimError;

use super::{RECLAIMER, reclaimer};
use crate::actor::Nature;
use crate::plan::lifecycle::PersonCommand;
use crate::world::person::Person;

impl Person {
    /// Carries out the commands one after another.
    pub(super) async fn act(self, mut deeds: Vec<(Duration, PersonCommand)>) {
        deeds.sort_by_key(|(at, _)| *at);
        for (at, deed) in deeds {
            self.shared.store.time.sleep_until(at).await;
            let request = RequestId(self.bytes());
            match deed {
                PersonCommand::Close(number) => self.close(request, number).await,
                PersonCommand::ReclaimTo(share) => self.reclaim_to(share).await,
                PersonCommand::Quarantine(share, count) => {
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
                PersonCommand::Lift => self.lift(request).await,
            }
        }
    }

    /// Closes the incarnation that is open now.
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

    /// Runs `reclaim --to` once, with retries after failures of the store only; a refusal is an
    /// answer.
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
