//! The slices of a TGB that a data-parallel rank reads. Only the data coordinate counts: ranks that differ
//! in tensor, pipeline or context coordinates read the same slices.
//!
//! Invariants: the data coordinates of one step partition the slices; the slices of a rank are consecutive;
//! all ranks read the same number.

use std::collections::BTreeSet;
use std::ops::Range;

/// A data-parallel size or rank that does not fit the stream's slices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MeshError {
    /// The ranks can't all get the same number of slices.
    #[error(
        "dp_size {dp_size} does not divide the stream's {slices} slices a step: choose one of {}",
        list(&divisors(*.slices))
    )]
    Size { slices: u32, dp_size: u32 },
    /// A rank outside the mesh.
    #[error("dp_rank {dp_rank} is outside a mesh of {dp_size}: ranks are 0 to {}", .dp_size.saturating_sub(1))]
    Rank { dp_rank: u32, dp_size: u32 },
}

/// Returns the slices that the data coordinate `dp_rank` of `dp_size` reads at each step: `slices /
/// dp_size` of them, its micro-batches in order.
pub fn slices_of(slices: u32, dp_size: u32, dp_rank: u32) -> Result<Range<u32>, MeshError> {
    if dp_size == 0 || slices == 0 || !slices.is_multiple_of(dp_size) {
        return Err(MeshError::Size { slices, dp_size });
    }
    if dp_rank >= dp_size {
        return Err(MeshError::Rank { dp_rank, dp_size });
    }
    let each = slices / dp_size;
    Ok(dp_rank * each..(dp_rank + 1) * each)
}

/// Returns the slices that a node reads for its local ranks, in order and with neighbours joined. Ranks
/// that share a slice cause one read of it.
pub fn union(
    slices: u32,
    dp_size: u32,
    dp_ranks: impl IntoIterator<Item = u32>,
) -> Result<Vec<Range<u32>>, MeshError> {
    let ranks: BTreeSet<u32> = dp_ranks.into_iter().collect();
    let mut joined: Vec<Range<u32>> = Vec::new();
    for rank in ranks {
        let next = slices_of(slices, dp_size, rank)?;
        match joined.last_mut().filter(|last| last.end == next.start) {
            Some(last) => last.end = next.end,
            None => joined.push(next),
        }
    }
    Ok(joined)
}

/// Returns all data-parallel sizes that divide `slices`, ascending.
pub fn divisors(slices: u32) -> Vec<u32> {
    let small = (1..).take_while(|d| u64::from(*d).pow(2) <= u64::from(slices));
    let both = small
        .filter(|d| slices.is_multiple_of(*d))
        .flat_map(|d| [d, slices / d]);
    both.collect::<BTreeSet<_>>().into_iter().collect()
}

fn list(sizes: &[u32]) -> String {
    sizes
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // lists of one range are meant
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn examples() {
        assert_eq!(slices_of(8, 4, 1), Ok(2..4));
        assert_eq!(slices_of(8, 8, 7), Ok(7..8));
        assert_eq!(slices_of(8, 1, 0), Ok(0..8));
        assert_eq!(union(8, 4, [0, 1]), Ok(vec![0..4]));
        assert_eq!(union(8, 4, [3, 0, 3]), Ok(vec![0..2, 6..8]));
        assert_eq!(union(8, 4, []), Ok(vec![]));
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused_with_fitting_ones_named() {
        assert_eq!(
            slices_of(12, 5, 0).unwrap_err().to_string(),
            "dp_size 5 does not divide the stream's 12 slices a step: choose one of 1, 2, 3, 4, 6, 12"
        );
        assert_eq!(
            slices_of(12, 4, 4).unwrap_err().to_string(),
            "dp_rank 4 is outside a mesh of 4: ranks are 0 to 3"
        );
        for (slices, dp_size) in [(8, 0), (8, 16), (0, 1), (0, 0), (u32::MAX, 2)] {
            assert_eq!(
                slices_of(slices, dp_size, 0),
                Err(MeshError::Size { slices, dp_size })
            );
        }
        assert!(union(8, 4, [0, 4]).is_err());
    }

    /// Ranks of a world by their data coordinate, whatever the other dimensions are called: `inner` of
    /// them vary faster than the data one, `outer` slower.
    fn coordinates(outer: u32, dp_size: u32, inner: u32) -> Vec<u32> {
        let of = |rank: u32| rank / inner % dp_size;
        (0..outer * dp_size * inner).map(of).collect()
    }

    /// All meshes up to 64 ranks, in each order of their dimensions, on nodes of each size.
    #[test]
    fn every_mesh_up_to_64_ranks() {
        let mut meshes = 0_u32;
        for dp_size in 1..=64_u32 {
            for others in 1..=64 / dp_size {
                for inner in divisors(others) {
                    let world = coordinates(others / inner, dp_size, inner);
                    for (micro_batches, node) in [(1, 1), (1, 8), (3, 4), (2, world.len())] {
                        check_mesh(dp_size * micro_batches, dp_size, &world, node);
                        meshes += 1;
                    }
                }
            }
        }
        assert!(meshes > 2000, "{meshes}");
    }

    fn check_mesh(slices: u32, dp_size: u32, world: &[u32], node: usize) {
        let at = format!("{slices} slices, dp_size {dp_size}, {world:?}, nodes of {node}");
        // The global order is that of the slices, whatever the shape: coordinate by coordinate.
        let all = (0..dp_size).flat_map(|rank| slices_of(slices, dp_size, rank).unwrap());
        assert!(all.eq(0..slices), "{at}");
        let mut owners = vec![BTreeSet::new(); slices as usize];
        for local in world.chunks(node) {
            let read = union(slices, dp_size, local.iter().copied()).unwrap();
            let once: Vec<u32> = read.iter().cloned().flatten().collect();
            assert!(
                once.windows(2).all(|w| w[0] < w[1]),
                "one copy a node: {at}"
            );
            let wanted: BTreeSet<u32> = local
                .iter()
                .flat_map(|rank| slices_of(slices, dp_size, *rank).unwrap())
                .collect();
            assert!(wanted.iter().copied().eq(once), "no slice too many: {at}");
            assert!(
                read.windows(2).all(|w| w[0].end < w[1].start),
                "neighbours share a read: {at}"
            );
            for rank in local {
                for slice in slices_of(slices, dp_size, *rank).unwrap() {
                    owners[slice as usize].insert(*rank);
                }
            }
        }
        let one = |owners: &BTreeSet<u32>| owners.len() == 1;
        assert!(owners.iter().all(one), "one coordinate owns a slice: {at}");
    }

    proptest! {
        #[test]
        fn every_slice_goes_to_one_rank(slices in 1..5000_u32, pick in any::<prop::sample::Index>()) {
            let sizes = divisors(slices);
            prop_assert_eq!(sizes.clone(), (1..=slices).filter(|d| slices % d == 0).collect::<Vec<_>>());
            let dp_size = sizes[pick.index(sizes.len())];
            let shares = (0..dp_size).map(|rank| slices_of(slices, dp_size, rank));
            let all: Vec<u32> = shares.flat_map(Result::unwrap).collect();
            prop_assert_eq!(all, (0..slices).collect::<Vec<_>>());
            prop_assert_eq!(union(slices, dp_size, 0..dp_size), Ok(vec![0..slices]));
        }

        #[test]
        fn a_node_reads_what_its_ranks_need(each in 1..9_u32, dp_size in 1..40_u32, ranks in prop::collection::vec(0..40_u32, 0..20)) {
            let slices = each * dp_size;
            let ranks: Vec<_> = ranks.into_iter().map(|r| r % dp_size).collect();
            let needed: BTreeSet<u32> =
                ranks.iter().flat_map(|&r| slices_of(slices, dp_size, r).unwrap()).collect();
            let read = union(slices, dp_size, ranks).unwrap();
            prop_assert!(read.windows(2).all(|r| r[0].end < r[1].start), "neighbours are joined: {:?}", read);
            prop_assert_eq!(read.into_iter().flatten().collect::<Vec<_>>(), needed.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn no_numbers_panic(slices: u32, dp_size: u32, dp_rank: u32) {
            if let Ok(share) = slices_of(slices, dp_size, dp_rank) {
                prop_assert!(share.end <= slices && !share.is_empty());
            }
        }
    }
}
