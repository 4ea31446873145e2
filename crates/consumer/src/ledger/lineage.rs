//! Holes that earlier attempts left: a daemon ended for good before it stored what it had delivered, and the next
//! attempt began elsewhere. The daemons of that attempt record these steps from the store's indexes, each for the
//! coordinates that fall to its own ones.

use std::ops::Range;
use std::sync::Arc;

use batchweave_core::ids::Step;
use batchweave_core::manifest::Manifest;
use batchweave_core::manifest::state::AttemptState;
use batchweave_core::mesh;
use batchweave_core::stream::StreamConfig;
use batchweave_store::{Store, StoreError};

use super::book::Hole;
use super::stored::Stored;
use crate::job::membership::Member;
use crate::quarantine::QuarantineRanges;

/// Returns the steps without ledgers of the attempts from which that of `members` continues, up to the step at which
/// each was continued: of the coordinates that fall to `members`.
pub(super) async fn holes(
    store: &dyn Store,
    stream: &StreamConfig,
    manifest: &Manifest,
    members: &[Arc<Member>],
) -> Result<Vec<Hole>, StoreError> {
    let Some(member) = members.first() else {
        return Ok(Vec::new());
    };
    let job = manifest.jobs().get(&member.job);
    let Some(job) = job.filter(|job| job.opened == member.opened) else {
        return Ok(Vec::new());
    };
    let mut holes = Vec::new();
    let mut later = job.attempt(member.attempt);
    while let Some((attempt, parent)) = later.and_then(|later| Some((later, later.parent?))) {
        // One that is forgotten ended below the watermark.
        later = job
            .attempt(parent.attempt)
            .filter(|p| p.number < attempt.number);
        let Some(earlier) = later else { break };
        let quarantine = QuarantineRanges::in_force_at(manifest.quarantines(), earlier.opened);
        let quarantine = Arc::new(quarantine);
        let reader = |dp_rank, rank, slices| Member {
            attempt: earlier.number,
            id: earlier.id,
            parent: earlier.parent,
            start: earlier.start,
            dp_rank,
            dp_size: earlier.dp_size,
            rank,
            shared: false,
            slices,
            quarantine: Arc::clone(&quarantine),
            ..Member::clone(member)
        };
        let stored = Stored::list(store, stream.stream_id, &reader(0, None, 0..0)).await?;
        let shares = members.iter().map(|own| share(stream.slices, earlier, own));
        for (dp_rank, slices) in shares.flatten() {
            let (rank, end) = stored.furthest(dp_rank).unwrap_or((None, earlier.start));
            let from = quarantine.next_read(end.max(earlier.start));
            if from < attempt.start {
                holes.push(Hole {
                    member: Arc::new(reader(dp_rank, rank, slices)),
                    steps: from..attempt.start,
                });
            }
        }
    }
    Ok(holes)
}

/// Returns the number of steps of `holes`, counted per rank.
pub(super) fn steps_of(holes: &[Hole]) -> Step {
    let steps = holes.iter().map(|hole| hole.steps.end - hole.steps.start);
    steps.sum()
}

/// Returns the coordinates of an earlier attempt that fall to `member`, with their slices: every one falls to some
/// coordinate of the new attempt.
fn share(slices: u32, earlier: &AttemptState, member: &Member) -> Vec<(u32, Range<u32>)> {
    let own = (member.dp_rank..earlier.dp_size).step_by(member.dp_size.max(1) as usize);
    let of = |dp_rank| {
        // The log holds only meshes that fit the stream.
        let slices = mesh::slices_of(slices, earlier.dp_size, dp_rank);
        slices.ok().map(|slices| (dp_rank, slices))
    };
    own.filter_map(of).collect()
}
