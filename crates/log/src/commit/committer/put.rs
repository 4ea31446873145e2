//! Writing: announcing pending commits as intents, and putting records.

use batchweave_core::commit_policy::Event;
use batchweave_core::flow_control::pacing_jobs;
use batchweave_core::manifest::{Entry, Hints, Writer};

use super::{Committer, Next};
use crate::commit::append::Append;
use crate::commit::candidates::{blank_record, choose, seen_record};
use crate::commit::outcome::Phase;
use crate::error::LogError;

impl Committer {
    pub(super) async fn announce(&mut self) -> Event {
        let epoch = self.entry_epoch();
        let entries = self
            .pending
            .entries(&self.log.manifest, epoch, self.announced);
        for (entry, commits) in entries {
            if let (Entry::Opened(_), Phase::Opening { announced, .. }) = (&entry, &mut self.phase)
            {
                *announced = Some(epoch);
            }
            if !self.intents.announce(entry).await {
                return Event::Announced(false);
            }
            self.announced += commits;
            self.counters.announced += 1;
        }
        Event::Announced(true)
    }

    /// One try to put a record with the pending commits and, with `combine`, the entries that others
    /// announced.
    pub(super) async fn put(
        &mut self,
        leads: bool,
        combine: bool,
        put_ms: Option<u32>,
    ) -> Result<Next, LogError> {
        // A seal may have been folded while there was nothing for it to stop.
        if let Some(stop) = self.stopped() {
            return Ok(Next::Stopped(stop));
        }
        let gathered = self.intents.take();
        let own = self
            .pending
            .entries(&self.log.manifest, self.entry_epoch(), 0);
        let mut candidates: Vec<_> = own.into_iter().map(|(entry, _)| entry).collect();
        let own = candidates.len();
        if combine {
            // An opening instance knows no bounds yet: while a job paces it combines only openings.
            let opening = matches!(self.phase, Phase::Opening { .. });
            let unbounded = !opening || pacing_jobs(&self.log.manifest).next().is_none();
            let fits = |e: &Entry| unbounded || matches!(e, Entry::Opened(_));
            candidates.extend(gathered.into_iter().filter(fits));
        }
        let gate = self.limiter.gate(&mut self.log).await?;
        let chosen = choose(&self.log.manifest, gate, candidates, own)?;
        let (entries, others, full) = (chosen.entries, chosen.others, chosen.full);
        // A leader that steps down writes a record that says it, even without entries.
        let steps_down = self.leading && !leads && !chosen.above;
        if entries.is_empty() && !steps_down {
            if chosen.above {
                self.limiter.note_blocked(self.log.manifest.next_version());
            }
            return Ok(Next::Event(Event::Gathered(0)));
        }
        let writer = Writer {
            name: self.name.to_string(),
            epoch: self.epoch(),
        };
        let hints = Hints {
            leads,
            put_ms,
            ..Hints::default()
        };
        let event = match self.log.put_record(&writer, hints, entries).await? {
            Append::Won { version, folded } => {
                self.note([&folded]);
                self.counters.records += 1;
                self.counters.combined += others.len() as u64;
                self.counters.version = Some(version);
                self.leading = leads;
                Event::Won { others, full }
            }
            Append::Lost { folded, .. } => {
                self.note([&folded]);
                self.counters.lost += 1;
                let seen = seen_record(&folded).unwrap_or_else(blank_record);
                self.leading &= !seen.leads;
                Event::Lost(seen)
            }
        };
        Ok(Next::event_unless(self.settle(), event))
    }

    /// Writes a record that says that this instance leads no more, or producers with announced entries
    /// would wait for it. A hint: it may fail.
    pub(crate) async fn step_down(&mut self) {
        if self.leading {
            let _ = self.put(false, false, None).await;
        }
    }
}
