//! Bytes of the newest steps, so that the bytes from any of these steps on are one subtraction.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::ids::Step;
use crate::manifest::{Manifest, Segment, StepEntry};

/// The most steps that are counted: 8 MiB of memory.
const STEPS_MAX: usize = 1 << 20;

/// Bytes of consecutive steps up to the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    first: Step,
    /// For each step the bytes before it, from any fixed point on.
    before: VecDeque<u64>,
    /// The bytes before the next step.
    end: u64,
    /// The largest sum of interest: older steps are dropped.
    most: u64,
}

/// The initial count; leaves room below for older steps that are added later.
const MIDDLE: u64 = 1 << 62;

impl Sizes {
    /// Counts the steps that the manifest itself holds. Sums above `most` bytes are not needed.
    pub fn new(m: &Manifest, most: u64) -> Self {
        let first = m.first_open_step();
        let mut sizes = Self {
            first,
            before: VecDeque::new(),
            end: MIDDLE,
            most: most.min(MIDDLE / 2),
        };
        let open = (first..m.next_step()).map_while(|step| m.open_step(step));
        open.for_each(|entry| sizes.push(entry.tgb.bytes()));
        sizes.trim();
        sizes
    }

    /// Adds steps that were placed.
    pub fn note(&mut self, placed: &[Arc<StepEntry>]) {
        for entry in placed {
            if entry.step != self.next() {
                // A gap: restart the count.
                self.first = entry.step;
                self.before.clear();
            }
            self.push(entry.tgb.bytes());
        }
        self.trim();
    }

    /// Returns the first counted step.
    pub fn first(&self) -> Step {
        self.first
    }

    /// Returns the step after the last counted one.
    pub fn next(&self) -> Step {
        self.first + self.before.len() as u64
    }

    /// Returns whether older steps can change an answer.
    pub fn wants_older(&self) -> bool {
        self.all() <= self.most && self.before.len() < STEPS_MAX
    }

    /// Adds the steps of the segment before the first counted step.
    pub fn add_older(&mut self, segment: &Segment) {
        for entry in segment.steps.iter().rev() {
            if entry.step.checked_add(1) != Some(self.first) || !self.wants_older() {
                continue;
            }
            let begin = self.before.front().copied().unwrap_or(self.end);
            let bytes = entry.tgb.bytes().min(self.most + 1);
            self.before.push_front(begin.saturating_sub(bytes));
            self.first = entry.step;
        }
    }

    /// Returns the bytes of the steps from `step` on; `None` when they are not all counted, which means
    /// more than `most` once no older steps are wanted.
    pub fn from(&self, step: Step) -> Option<u64> {
        if step >= self.next() {
            return Some(0);
        }
        let index = usize::try_from(step.checked_sub(self.first)?).ok()?;
        Some(self.end - self.before.get(index)?)
    }

    fn all(&self) -> u64 {
        self.before.front().map_or(0, |begin| self.end - begin)
    }

    fn push(&mut self, bytes: u64) {
        self.before.push_back(self.end);
        // A step over the bound counts as just over it.
        self.end += bytes.min(self.most + 1);
    }

    fn trim(&mut self) {
        while let Some(second) = self.before.get(1)
            && (self.end - second > self.most || self.before.len() > STEPS_MAX)
        {
            self.before.pop_front();
            self.first += 1;
        }
    }
}
