//! The data objects that the log names for steps that may still be read, with their expected sizes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use batchweave_core::ids::{ProducerName, Seq, Step};
use batchweave_core::manifest::entry::BatchEntry;
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Folded};
use batchweave_core::tgb::{ENTRY_BYTES, TRAILER_BYTES};

/// One object, as assembled from the parts in the log.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    frames: u64,
    frames_end: u64,
    /// TGBs in it without a step yet.
    waiting: u32,
    /// The first and last step with slices in it.
    pub(crate) first: Option<Step>,
    pub(crate) last: Option<Step>,
}

impl Named {
    /// The object's length: all its TGBs are in one entry. The length of a provenance object is not in the
    /// log.
    pub(crate) fn bytes(&self) -> Option<u64> {
        (self.frames > 0).then(|| self.frames_end + self.frames * ENTRY_BYTES + TRAILER_BYTES)
    }

    fn needed(&self, watermark: Step) -> bool {
        self.waiting > 0 || self.last.is_some_and(|last| last >= watermark)
    }
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Objects {
    by_key: HashMap<Arc<str>, Named>,
    waiting: BTreeMap<(ProducerName, Seq), Vec<Arc<str>>>,
    pruned_at: Step,
}

impl Objects {
    /// Adds the effects of a record.
    pub(crate) fn note(&mut self, folded: &Folded) {
        let Some(record) = &folded.record else { return };
        for (entry, verdict) in record.entries.iter().zip(&folded.entries) {
            if let (Entry::Batch(batch), Ok(Validity::Applies)) = (entry, verdict) {
                self.commit(batch);
            }
        }
        for placed in &folded.placed {
            let at = (placed.producer.clone(), placed.seq);
            for key in self.waiting.remove(&at).unwrap_or_default() {
                if let Some(object) = self.by_key.get_mut(&key) {
                    object.waiting -= 1;
                    object.first.get_or_insert(placed.step);
                    object.last = Some(placed.step);
                }
            }
        }
    }

    fn commit(&mut self, batch: &BatchEntry) {
        for (seq, tgb) in (batch.first_seq..).zip(&batch.tgbs) {
            let mut keys: Vec<Arc<str>> = Vec::new();
            for part in &tgb.parts {
                let key: Arc<str> = part.key.as_str().into();
                let object = self.by_key.entry(Arc::clone(&key)).or_default();
                object.frames += u64::from(part.slices);
                object.frames_end = object.frames_end.max(part.end());
                if !keys.contains(&key) {
                    object.waiting += 1;
                    keys.push(key);
                }
            }
            if let Some(key) = &tgb.provenance {
                let key: Arc<str> = key.as_str().into();
                self.by_key.entry(Arc::clone(&key)).or_default().waiting += 1;
                keys.push(key);
            }
            self.waiting.insert((batch.producer.clone(), seq), keys);
        }
    }

    /// Forgets objects below the watermark; cheap when it has not moved.
    pub(crate) fn prune(&mut self, watermark: Step) {
        if watermark > self.pruned_at {
            self.pruned_at = watermark;
            self.by_key.retain(|_, object| object.needed(watermark));
        }
    }

    /// Returns every object that is needed from `watermark` on, by key.
    pub(crate) fn needed(&self, watermark: Step) -> BTreeMap<&str, &Named> {
        let all = self.by_key.iter();
        let needed = all.filter(|(_, object)| object.needed(watermark));
        needed.map(|(key, object)| (&**key, object)).collect()
    }
}
