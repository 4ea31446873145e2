//! Ranges of whole numbers, which hold no items.

/// A range of whole numbers, as `range` makes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) start: i128,
    pub(super) stop: i128,
    pub(super) step: i128,
}

impl Range {
    pub(super) fn len(self) -> usize {
        let span = if self.step > 0 {
            self.stop - self.start
        } else {
            self.start - self.stop
        };
        let step = self.step.abs();
        usize::try_from((span.max(0) + step - 1) / step).unwrap_or(0)
    }

    pub(super) fn get(self, at: usize) -> i128 {
        self.start + self.step * at as i128
    }

    pub(super) fn numbers(self) -> impl Iterator<Item = i128> {
        (0..self.len()).map(move |at| self.get(at))
    }
}
