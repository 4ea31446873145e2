//! The reader of bundles: it reads one, compares its last record with the log, and takes or drops it.

use super::{Broken, Bundle, Bundles, DAMAGED, FORMER, Held, Mistake, Moment, Property, READER};
use super::{Records, WINDOW};

impl Bundles {
    pub(super) fn read(self, m: &mut Moment, p: usize) -> Option<()> {
        let process = m.processes[p];
        if process.in_doubt || (p == READER && self.without(Mistake::NoFallback)) {
            return None;
        }
        // What does not continue its own fold stops a process, until a repair or a restart.
        let behind = process.folded.len() < m.log.len() && process.folded.begins(m.log);
        m.processes[p].folded = behind.then(|| m.log.first(process.folded.len() + 1))?;
        Some(())
    }

    /// Reads a bundle, and takes it at once where a mistaken reader compares nothing afterwards.
    #[allow(
        clippy::option_option,
        reason = "no such step, or a step that may break a property"
    )]
    pub(super) fn read_bundle(self, m: &mut Moment, count: usize) -> Option<Option<Broken>> {
        let reader = m.processes[READER];
        let bundle = m.bundles[count].filter(|_| count > reader.folded.len())?;
        if self.without(Mistake::NoAnchor) {
            return Some(self.take(m, bundle));
        }
        match reader.held {
            Held::Anchor(log) if self.without(Mistake::AnchorEarly) => {
                m.processes[READER].held = Held::Nothing;
                if log == bundle.records {
                    Some(self.take(m, bundle))
                } else {
                    Some(None)
                }
            }
            Held::Nothing if !self.without(Mistake::AnchorEarly) => {
                self.fits(reader.folded, bundle)?;
                m.processes[READER].held = Held::Bundle(bundle);
                Some(None)
            }
            _ => None,
        }
    }

    /// Reads the last record of a bundle before the bundle.
    pub(super) fn read_early(self, m: &mut Moment, count: usize) -> Option<()> {
        let early = self.without(Mistake::AnchorEarly) && m.processes[READER].held == Held::Nothing;
        let record = m.record(count).filter(|_| early)?;
        m.processes[READER].held = Held::Anchor(record);
        Some(())
    }

    /// Compares the last record of the bundle with the log, and takes or drops the bundle.
    #[allow(
        clippy::option_option,
        reason = "no such step, or a step that may break a property"
    )]
    pub(super) fn compare(self, m: &mut Moment) -> Option<Option<Broken>> {
        let Held::Bundle(bundle) = m.processes[READER].held else {
            return None;
        };
        m.processes[READER].held = Held::Nothing;
        let (records, last) = (bundle.records, m.record(bundle.records.len()));
        let same = match self.mistake {
            Some(Mistake::AnchorExists) => last.is_some(),
            Some(Mistake::AnchorNotYet) => last.is_none_or(|last| last == records),
            Some(Mistake::AnchorFirst) => {
                let first = records.first(records.len().saturating_sub(WINDOW) + 1);
                m.record(first.len()) == Some(first)
            }
            // Damage in other records than the last is not seen here.
            _ => last == Some(records),
        };
        if same {
            Some(self.take(m, bundle))
        } else {
            Some(None)
        }
    }

    /// Whether a bundle continues what a reader has folded.
    fn fits(self, folded: Records, bundle: Bundle) -> Option<()> {
        let first = bundle.records.len().saturating_sub(WINDOW);
        let gap = first > folded.len() && !self.without(Mistake::SkipGap);
        let damaged = !bundle.intact && !self.without(Mistake::NoDigest);
        // The first record continues stream.json, so that a former stream's differs from the beginning.
        let former = bundle.records.writers[0] == FORMER;
        let other = former || !folded.first(bundle.records.len()).begins(bundle.records);
        (!gap && !damaged && (!other || self.without(Mistake::NoChain))).then_some(())
    }

    /// Adopts the records of a bundle behind those of the reader.
    fn take(self, m: &mut Moment, bundle: Bundle) -> Option<Broken> {
        let (folded, count) = (m.processes[READER].folded, bundle.records.len());
        // What the reader has folded may have grown since it read the bundle.
        if count <= folded.len() || self.fits(folded, bundle).is_none() {
            return None;
        }
        let mut taken = folded;
        if self.without(Mistake::SkipGap) {
            taken.count = taken.count.max(count.saturating_sub(WINDOW) as u8);
        }
        for at in taken.len()..count {
            let writer = bundle.records.writers[at];
            taken = taken.with(if bundle.intact { writer } else { DAMAGED });
        }
        m.processes[READER].folded = taken;
        let planted = m.ahead == Some(taken);
        let detail = format!("{taken:?} was adopted, the log is {:?}", m.log);
        let broken = !planted && !taken.begins(m.log);
        broken.then(|| Broken::new(Property::Fold, detail))
    }

    /// Folds the log again when a repair below the reader's head is unknown to its fold.
    pub(super) fn look(self, m: &mut Moment) -> Option<()> {
        let folded = m.processes[READER].folded;
        let repaired = m.ahead.is_some_and(|ahead| ahead.len() <= m.log.len());
        let astray = !folded.begins(m.log) && m.ahead.is_some_and(|a| folded.len() >= a.len());
        if !repaired || !astray || self.without(Mistake::NoRepairs) {
            return None;
        }
        m.processes[READER].folded = m.log.first(folded.len());
        m.processes[READER].lost = false;
        Some(())
    }
}
