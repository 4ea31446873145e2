//! A short list inside the state itself: copying a state allocates nothing, and its hash covers only
//! the items in use.

use std::hash::{Hash, Hasher};

/// A list of at most `N` items. `push` panics when a model needs more.
#[derive(Debug, Clone, Copy)]
pub struct InlineList<T, const N: usize> {
    len: u8,
    items: [T; N],
}

impl<T: Copy + Default + PartialEq + Ord, const N: usize> InlineList<T, N> {
    /// Returns the items as a slice.
    pub fn as_slice(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }

    /// Returns the items, to change in place.
    pub fn slice_mut(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns true if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if no further item fits.
    pub fn is_full(&self) -> bool {
        self.len() == N
    }

    /// Adds an item at the end.
    pub fn push(&mut self, item: T) {
        assert!(!self.is_full(), "a bound of the model is too small: {N}");
        self.items[self.len()] = item;
        self.len += 1;
    }

    /// Adds an item in order, unless it is present.
    pub fn insert(&mut self, item: T) {
        if let Err(at) = self.as_slice().binary_search(&item) {
            self.push(item);
            self.items[at..usize::from(self.len)].rotate_right(1);
        }
    }

    /// Keeps the items for which `keep` returns true. Freed places are reset, so that equal lists
    /// are equal in memory.
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

impl<T: Copy + Default, const N: usize> Default for InlineList<T, N> {
    fn default() -> Self {
        Self {
            len: 0,
            items: [T::default(); N],
        }
    }
}

impl<T: Copy + Default + Ord, const N: usize> PartialEq for InlineList<T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Copy + Default + Ord, const N: usize> Eq for InlineList<T, N> {}

impl<T: Copy + Default + Ord + Hash, const N: usize> Hash for InlineList<T, N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_in_order() {
        let mut row: InlineList<u8, 4> = InlineList::default();
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
