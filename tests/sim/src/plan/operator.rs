//! Commands of an operator, and when they are given.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::draw::Draw;

const S: Duration = Duration::from_secs(1);

/// A command of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperatorCommand {
    /// Seals the stream; always followed by an unseal.
    Seal,
    /// Lifts the seal again.
    Unseal,
    /// Ends the epoch of this producer; its supervisor starts another process.
    Retire(u32),
    /// Sets a new mixture, which begins this many TGBs after each producer's next one.
    Mixture(u64),
    /// Sets a new stage, which begins this many TGBs after each producer's next one.
    Stage(u64),
    /// Sets this many mixtures without producers, one record each.
    Chatter(u32),
}

/// Draws the commands of a world, in order.
pub(super) fn draw(draw: &mut Draw, producers: &[u32]) -> Vec<(Duration, OperatorCommand)> {
    let mut acts = Vec::new();
    if draw.chance(600) {
        return acts;
    }
    let mut at = draw.duration(Duration::ZERO, 3 * S);
    for _ in 0..draw.range(1..6) {
        let one = producers[draw.range(0..producers.len() as u64) as usize];
        match draw.range(0..5) {
            0 => {
                acts.push((at, OperatorCommand::Seal));
                // Long enough for a snapshot during the seal.
                if draw.chance(400) {
                    acts.push((at, OperatorCommand::Chatter(draw.range(50..300) as u32)));
                }
                at += draw.duration(S / 20, 10 * S);
                acts.push((at, OperatorCommand::Unseal));
            }
            1 => acts.push((at, OperatorCommand::Retire(one))),
            2 => acts.push((at, OperatorCommand::Stage(draw.range(0..12)))),
            _ => acts.push((at, OperatorCommand::Mixture(draw.range(0..12)))),
        }
        at += draw.duration(Duration::ZERO, 4 * S);
    }
    acts
}
