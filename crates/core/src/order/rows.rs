//! The order of the rows of a window of batches.

use super::keyed::{Key, Purpose};
use crate::ids::Seq;

/// Returns the order of the `count` rows of the window whose first batch has the number `first`: the n-th that is given is the
/// one that was made as number `order[n]`.
pub fn row_order(seed: u64, first: Seq, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    Key::new(Purpose::Rows, "", &[seed, first]).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another implementation of docs/order.md compares its own with this.
    #[test]
    fn the_order_of_rows_matches_the_page() {
        assert_eq!(row_order(1, 0, 8), ORDER);
        assert_ne!(row_order(1, 8, 8), ORDER);
        assert_ne!(row_order(2, 0, 8), ORDER);
        assert!(row_order(1, 0, 0).is_empty());
    }

    const ORDER: [usize; 8] = [5, 2, 4, 3, 0, 6, 1, 7];
}
