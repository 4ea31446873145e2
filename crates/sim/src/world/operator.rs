//! A person at work on the stream while producers write: seals and unseals it, retires producers,
//! changes the mixture, and now and then writes so many records that a snapshot falls among them.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{ProducerName, RequestId, Seq};
use batchweave_core::manifest::entry::{Mixture, Retired, Sealed, Unsealed};
use batchweave_core::manifest::{Entry, Manifest};
use serde::{Deserialize, Serialize};

use super::plan::ProducerPlan;
use super::run::{Shared, name};
use crate::draw::Draw;
use crate::life::person::Person;

const S: Duration = Duration::from_secs(1);

/// What the operator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Seals the stream; always followed by an unseal.
    Seal,
    /// Undoes that.
    Unseal,
    /// Ends the epoch of this producer; its supervisor starts another process.
    Retire(u32),
    /// Sets another mixture, for each producer from this many TGBs after its next on.
    Mixture(u64),
    /// Sets this many mixtures that concern nobody, one record each.
    Chatter(u32),
}

/// The acts of a world, in order.
pub(super) fn draw(draw: &mut Draw, producers: &[ProducerPlan]) -> Vec<(Duration, Act)> {
    let mut acts = Vec::new();
    if draw.chance(600) {
        return acts;
    }
    let mut at = draw.duration(Duration::ZERO, 3 * S);
    for _ in 0..draw.range(1..6) {
        let one = producers[draw.range(0..producers.len() as u64) as usize].number;
        match draw.range(0..4) {
            0 => {
                acts.push((at, Act::Seal));
                // Long enough for a snapshot to fall under the seal.
                if draw.chance(400) {
                    acts.push((at, Act::Chatter(draw.range(50..300) as u32)));
                }
                at += draw.duration(S / 20, 10 * S);
                acts.push((at, Act::Unseal));
            }
            1 => acts.push((at, Act::Retire(one))),
            _ => acts.push((at, Act::Mixture(draw.range(0..12)))),
        }
        at += draw.duration(Duration::ZERO, 4 * S);
    }
    acts
}

/// Carries out the plan's acts.
pub(super) async fn operate(shared: Arc<Shared>) {
    let person = Person::new(&shared, "operator");
    for (at, act) in shared.plan.acts.clone() {
        shared.store.time.sleep_until(at).await;
        match act {
            Act::Chatter(records) => {
                for _ in 0..records {
                    person.commit(mixture(&person, Vec::new())).await;
                }
            }
            Act::Mixture(ahead) => {
                // A mixture may not begin within an object.
                let whole = shared.plan.producers.iter().filter(|p| p.shared == 1);
                let from = whole.map(|p| (name(p.number), ahead));
                person.commit(mixture(&person, from.collect())).await;
            }
            Act::Seal => {
                let sealed = Sealed {
                    request: RequestId(person.bytes()),
                    reason: "a look at the data".into(),
                };
                person.commit(|_| Entry::Sealed(sealed.clone())).await;
            }
            Act::Unseal => {
                let unsealed = Unsealed {
                    request: RequestId(person.bytes()),
                    reason: "it is good".into(),
                };
                person.commit(|_| Entry::Unsealed(unsealed.clone())).await;
            }
            Act::Retire(number) => {
                let (request, producer) = (RequestId(person.bytes()), name(number));
                let make = |m: &Manifest| {
                    Entry::Retired(Retired {
                        request,
                        epoch: m.producer(&producer).map_or(0, |p| p.epoch),
                        producer: producer.clone(),
                        reason: "the machine is gone".into(),
                    })
                };
                person.commit(make).await;
            }
        }
        let text = format!("{act:?}");
        shared.store.note(&person.actor, text);
    }
}

/// The next mixture, in force for each of these open producers from so many TGBs after its next on.
fn mixture(
    person: &Person,
    ahead: Vec<(ProducerName, Seq)>,
) -> impl Fn(&Manifest) -> Entry + use<> {
    let request = RequestId(person.bytes());
    move |m| {
        let from = ahead.iter().filter_map(|(name, ahead)| {
            let state = m.producer(name).filter(|p| !p.finished)?;
            let set = state.mixtures.keys().max().copied().unwrap_or(0);
            Some((name.clone(), (state.next_seq + ahead).max(set)))
        });
        let from = from.collect();
        Entry::Mixture(Mixture {
            request,
            id: m.mixture().id + 1,
            from,
            spec: serde_json::json!({ "web": 1 }),
        })
    }
}
