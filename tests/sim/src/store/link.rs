//! The link between one actor and the store: the transfer time of bytes, and reads that return wrong
//! bytes although the stored object is whole.

use std::time::Duration;

use batchweave_store::Op;
use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::draw::Draw;

/// The behaviour of the links of a world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkPlan {
    /// Wrong reads per 1,000, each independent of the next read of the same object.
    #[serde(default)]
    pub lies: u32,
    /// Reads per 1,000 at which an actor's connection becomes bad. Every read over a bad connection
    /// is wrong until the connection breaks; a read over a fresh one is right.
    #[serde(default)]
    pub bad_connections: u32,
    /// Bytes per second; none for an immediate transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// True if worlds have wrong reads by default.
const LYING: bool = true;

/// The most reads over a bad connection before it breaks.
const BAD_READS_MAX: u64 = 64;

impl LinkPlan {
    /// Draws the links of a world: half of the worlds have wrong reads, a third are slow.
    pub fn draw(draw: &mut Draw) -> Self {
        let mut plan = Self::default();
        match draw.range(0..6) {
            _ if !LYING => {}
            0 => plan.lies = 1 + draw.range(0..5) as u32,
            1 => plan.lies = 5 + draw.range(0..16) as u32,
            2 => plan.bad_connections = 1 + draw.range(0..5) as u32,
            _ => {}
        }
        let slow = [256 << 10, 2 << 20, 16 << 20][draw.range(0..3) as usize];
        plan.bytes_per_second = draw.chance(333).then_some(slow);
        plan
    }

    /// Returns the transfer time of this many bytes.
    pub(crate) fn takes(&self, bytes: usize) -> Duration {
        match self.bytes_per_second {
            Some(rate) => Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64),
            None => Duration::ZERO,
        }
    }
}

/// The link of one actor.
#[derive(Debug)]
pub(crate) struct Link {
    plan: LinkPlan,
    draw: Draw,
    /// The number of reads that will still be wrong over this connection.
    bad_reads: u64,
}

impl Link {
    /// Creates the link of an actor. Its draws do not affect the rest of the world.
    pub(crate) fn new(plan: LinkPlan, seed: u64, actor: &str) -> Self {
        Self {
            plan,
            draw: Draw::new(seed, &format!("link of {actor}"), 0),
            bad_reads: 0,
        }
    }

    /// Returns the bytes that arrive, and true if they are wrong.
    pub(crate) fn carries(&mut self, op: Op, bytes: &Bytes, fresh: bool) -> (Bytes, bool) {
        if !self.lies(fresh) || bytes.is_empty() {
            return (bytes.clone(), false);
        }
        (lie(&mut self.draw, op, bytes), true)
    }

    fn lies(&mut self, fresh: bool) -> bool {
        let Self { plan, draw, .. } = self;
        let alone = draw.chance(plan.lies);
        if draw.chance(plan.bad_connections) {
            self.bad_reads = draw.range(1..BAD_READS_MAX + 1);
        }
        if fresh || self.bad_reads == 0 {
            return alone;
        }
        self.bad_reads -= 1;
        true
    }
}

/// Returns wrong bytes: one bit flipped, or one byte less or more. A ranged read keeps its length
/// by contract.
fn lie(draw: &mut Draw, op: Op, bytes: &Bytes) -> Bytes {
    let mut lie = BytesMut::from(bytes.as_ref());
    let at = draw.range(0..bytes.len() as u64) as usize;
    let ways = if op == Op::GetRange { 2 } else { 6 };
    match draw.range(0..ways) {
        0 => lie[at] ^= 1 << draw.range(0..8),
        1 => lie[at] ^= draw.range(1..256) as u8,
        2 => lie.truncate(bytes.len() - 1),
        3 => lie = [&bytes[..at], &bytes[at + 1..]].concat()[..].into(),
        4 => lie.extend_from_slice(b"\n"),
        _ => lie = [&bytes[..at], &bytes[at..=at], &bytes[at..]].concat()[..].into(),
    }
    lie.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: Bytes = Bytes::from_static(b"{\"format\":1,\"text\":\"aab\"}\n");

    fn link(lies: u32, bad_connections: u32) -> Link {
        let plan = LinkPlan {
            lies,
            bad_connections,
            bytes_per_second: None,
        };
        Link::new(plan, 1, "p0#0")
    }

    #[test]
    fn a_lie_is_never_the_truth_and_differs_by_one_byte() {
        let mut link = link(1000, 0);
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let (bytes, lied) = link.carries(Op::Get, &BYTES, false);
            assert!(lied && bytes != BYTES, "{bytes:?}");
            lengths.insert(bytes.len() + 1 - BYTES.len());
            let (ranged, _) = link.carries(Op::GetRange, &BYTES, false);
            assert!(ranged != BYTES && ranged.len() == BYTES.len());
        }
        assert_eq!(lengths, [0, 1, 2].into());
    }

    #[test]
    fn lies_are_independent_and_a_fresh_connection_is_honest() {
        let mut some = link(10, 0);
        let lies = (0..10_000)
            .filter(|_| some.carries(Op::Get, &BYTES, true).1)
            .count();
        assert!((50..200).contains(&lies), "{lies}");

        let mut bad = link(0, 5);
        let (mut longest, mut now) = (0, 0);
        for _ in 0..10_000 {
            now = if bad.carries(Op::Get, &BYTES, false).1 {
                now + 1
            } else {
                0
            };
            longest = longest.max(now);
            assert!(!bad.carries(Op::Get, &BYTES, true).1);
        }
        assert!(longest > 10, "{longest}");
    }

    #[test]
    fn time_grows_with_bytes() {
        let plan = LinkPlan {
            bytes_per_second: Some(1 << 20),
            ..LinkPlan::default()
        };
        assert_eq!(plan.takes(1 << 19), Duration::from_millis(500));
        assert_eq!(LinkPlan::default().takes(1 << 30), Duration::ZERO);
    }
}
