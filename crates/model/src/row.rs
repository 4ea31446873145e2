//! A short list that lives in the state itself: no allocation when a state is copied, and its hash
//! sees only what is in use.

use std::hash::{Hash, Hasher};

/// At most `N` items. A model that needs more has wrong bounds: `push` says so.
#[derive(Debug, Clone, Copy)]
pub struct Row<T, const N: usize> {
    len: u8,
    items: [T; N],
}

impl<T: Copy + Default + PartialEq + Ord, const N: usize> Row<T, N> {
    /// The items.
    pub fn as_slice(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }

    /// The items, to change in place.
    pub fn slice_mut(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }

    /// How many.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no further item fits.
    pub fn is_full(&self) -> bool {
        self.len() == N
    }

    /// Adds at the end.
    pub fn push(&mut self, item: T) {
        assert!(!self.is_full(), "a bound of the model is too small: {N}");
        self.items[self.len()] = item;
        self.len += 1;
    }

    /// Adds in order; an item that is there already is not added again.
    pub fn insert(&mut self, item: T) {
        if let Err(at) = self.as_slice().binary_search(&item) {
            self.push(item);
            self.items[at..usize::from(self.len)].rotate_right(1);
        }
    }

    /// Keeps what `keep` says. Freed places are reset, so that equal rows are equal in memory.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        let mut kept = Self::default();
        for item in self.as_slice() {
            if keep(item) {
                kept.push(*item);
            }
        }
        *self = kept;
    }
}

impl<T: Copy + Default, const N: usize> Default for Row<T, N> {
    fn default() -> Self {
        Self {
            len: 0,
            items: [T::default(); N],
        }
    }
}

impl<T: Copy + Default + Ord, const N: usize> PartialEq for Row<T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Copy + Default + Ord, const N: usize> Eq for Row<T, N> {}

impl<T: Copy + Default + Ord + Hash, const N: usize> Hash for Row<T, N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_in_order() {
        let mut row: Row<u8, 4> = Row::default();
        for item in [3, 1, 2, 3, 1] {
            row.insert(item);
        }
        assert_eq!(row.as_slice(), [1, 2, 3]);
        row.retain(|item| *item != 2);
        assert_eq!(row.as_slice(), [1, 3]);
        row.push(0);
        assert_eq!((row.len(), row.is_full()), (3, false));
    }
}
