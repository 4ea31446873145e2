//! Reads whose bodies go straight into the arena. The bytes are summed right after they are written, while
//! they are in the processor's cache.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchweave_arena::{ArenaError, FrameBuf};
use batchweave_core::crc::Crc32c;
use batchweave_core::tgb::HEADER_BYTES;
use batchweave_core::tgb::ranges::Read;
use futures::future::try_join_all;

use super::retry::{ReadError, open, short_body, with_retries};
use super::{Fetcher, Target};

/// Bytes that are read and summed at a time: a part of a core's own cache.
const CHUNK_BYTES: usize = 256 << 10;

/// Reads `read` into the arena, with `fresh` on new connections. Returns the checksum of each target's bytes
/// behind its header.
pub(super) async fn fill(
    fetcher: &Fetcher,
    read: &Read,
    targets: &[Target],
    fresh: bool,
) -> Result<Vec<Crc32c>, ReadError> {
    let pieces = read.pieces().into_iter();
    let pieces = pieces.map(|range| {
        with_retries(fetcher, fresh, move |fresh| {
            once(fetcher, &read.key, range.clone(), targets, fresh)
        })
    });
    let mut sums = vec![Crc32c::new(); targets.len()];
    for sum in try_join_all(pieces).await?.into_iter().flatten() {
        let whole = &mut sums[sum.target];
        if whole.bytes() == 0 {
            *whole = sum.crc;
        } else {
            whole.append(&sum.crc);
        }
    }
    Ok(sums)
}

/// Performs one request, from the first byte to the last.
async fn once(
    fetcher: &Fetcher,
    key: &str,
    range: Range<u64>,
    targets: &[Target],
    fresh: bool,
) -> Result<Vec<Sum>, ReadError> {
    let (metrics, context) = (&fetcher.resources.metrics, &fetcher.resources.context);
    let stages = &metrics.stages;
    let waiting = stages.wait.start_timer();
    let permit = fetcher.permits.acquire().await;
    drop(waiting);
    let mut strips = strips(targets, &range)?;
    let mut sums = sums(targets, &range);
    let asked = context.now();
    let mut body = open(fetcher, key, &range, fresh).await?;
    let answered = context.since(asked);
    let (mut behind, mut summing) = (&mut sums[..], Duration::ZERO);
    for (start, lease) in &mut strips {
        let mut filled = 0;
        while filled < lease.length() as usize {
            let at = *start + filled as u64;
            let into = &mut lease.as_mut_slice()[filled..];
            let most = into.len().min(CHUNK_BYTES);
            let count = body.read(&mut into[..most]).await?;
            if count == 0 {
                return Err(short_body(fetcher, key, at, range.end).into());
            }
            metrics.bytes_fetched.inc_by(count as u64);
            let arrived = Instant::now();
            behind = add(behind, at, &into[..count]);
            summing += arrived.elapsed();
            filled += count;
        }
    }
    stages.crc.observe(summing.as_secs_f64());
    let took = context.since(asked);
    stages.fetch.observe(took.as_secs_f64());
    permit.done(range.end - range.start, answered);
    Ok(sums)
}

/// The part of a frame behind its header that one request reads, and its checksum so far.
struct Sum {
    target: usize,
    range: Range<u64>,
    crc: Crc32c,
}

fn inside<'a>(
    targets: &'a [Target],
    range: &Range<u64>,
) -> impl Iterator<Item = (usize, &'a Target, Range<u64>)> {
    let range = range.clone();
    targets.iter().enumerate().filter_map(move |(n, target)| {
        let from = &target.from.range;
        let part = from.start.max(range.start)..from.end.min(range.end);
        (part.start < part.end).then_some((n, target, part))
    })
}

fn sums(targets: &[Target], range: &Range<u64>) -> Vec<Sum> {
    let sum = |(n, target, part): (usize, &Target, Range<u64>)| Sum {
        target: n,
        range: part.start.max(target.from.range.start + HEADER_BYTES)..part.end,
        crc: Crc32c::new(),
    };
    inside(targets, range).map(sum).collect()
}

/// Adds the bytes at `at` in the object to the sums that they are part of. Returns the sums that end behind
/// these bytes.
fn add<'a>(sums: &'a mut [Sum], at: u64, bytes: &[u8]) -> &'a mut [Sum] {
    let end = at + bytes.len() as u64;
    let mut passed = 0;
    for sum in sums.iter_mut() {
        let part = sum.range.start.max(at)..sum.range.end.min(end);
        if part.start < part.end {
            let (first, last) = ((part.start - at) as usize, (part.end - at) as usize);
            sum.crc.update(&bytes[first..last]);
        }
        if sum.range.end > end {
            break;
        }
        passed += 1;
    }
    &mut sums[passed..]
}

/// Returns the destinations of the bytes of `range`: the parts of the targets in it, each with its offset in
/// the object. Frames that are neighbours in the arena, too, share a strip.
fn strips(targets: &[Target], range: &Range<u64>) -> Result<Vec<(u64, FrameBuf)>, ArenaError> {
    let mut all: Vec<(u64, &Target, Range<u64>)> = Vec::new();
    for (_, target, part) in inside(targets, range) {
        let offset = target.offset + (part.start - target.from.range.start);
        let place = offset..offset + (part.end - part.start);
        match all.last_mut() {
            Some((_, last, strip))
                if Arc::ptr_eq(&last.segment, &target.segment) && strip.end == place.start =>
            {
                strip.end = place.end;
            }
            _ => all.push((part.start, target, place)),
        }
    }
    let lease = |(start, target, place): (u64, &Target, Range<u64>)| {
        let bytes = place.end - place.start;
        Ok((start, target.segment.lease(place.start, bytes)?))
    };
    all.into_iter().map(lease).collect()
}

#[cfg(test)]
mod tests;
