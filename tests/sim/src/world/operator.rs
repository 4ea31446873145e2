//! A person who works on the stream while producers write: seals and unseals it, retires producers,
//! changes the mixture and the stage, and sometimes writes enough records for a snapshot.

use std::sync::Arc;

use batchweave_core::ids::{Hash, ProducerName, RequestId, Seq};
use batchweave_core::manifest::entry::{Mixture, Retired, Sealed, Stage, Unsealed};
use batchweave_core::manifest::{Entry, Manifest};
use batchweave_core::stream::StreamOrder;

use super::shared::{Shared, name};
use crate::plan::operator::OperatorCommand;
use crate::world::person::Person;

/// Carries out the plan's commands.
pub(super) async fn operate(shared: Arc<Shared>) {
    let person = Person::new(&shared, "operator");
    for (at, act) in shared.plan.acts.clone() {
        shared.store.time.sleep_until(at).await;
        match act {
            OperatorCommand::Chatter(records) => {
                for _ in 0..records {
                    person.commit(mixture(&person, Vec::new())).await;
                }
            }
            OperatorCommand::Mixture(ahead) => {
                let from = whole_producers(&shared).map(|name| (name, ahead));
                person.commit(mixture(&person, from.collect())).await;
            }
            OperatorCommand::Stage(ahead) => {
                person.commit(stage(&person, &shared, ahead)).await;
            }
            OperatorCommand::Seal => {
                let sealed = Sealed {
                    request: RequestId(person.bytes()),
                    reason: "a look at the data".into(),
                };
                person.commit(|_| Entry::Sealed(sealed.clone())).await;
            }
            OperatorCommand::Unseal => {
                let unsealed = Unsealed {
                    request: RequestId(person.bytes()),
                    reason: "it is good".into(),
                };
                person.commit(|_| Entry::Unsealed(unsealed.clone())).await;
            }
            OperatorCommand::Retire(number) => retire(&person, name(number)).await,
        }
        let text = format!("{act:?}");
        shared.store.note(&person.actor, text);
    }
}

async fn retire(person: &Person, producer: ProducerName) {
    let request = RequestId(person.bytes());
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

/// Returns the producers that a mixture may begin with: not within an object.
pub(crate) fn whole_producers(shared: &Shared) -> impl Iterator<Item = ProducerName> {
    let whole = shared.plan.producers.iter().filter(|p| p.shared == 1);
    whole.map(|p| name(p.number))
}

/// Builds the next mixture, which begins for each of these open producers this many TGBs after its
/// next.
pub(crate) fn mixture(
    person: &Person,
    ahead: Vec<(ProducerName, Seq)>,
) -> impl Fn(&Manifest) -> Entry + use<> {
    let request = RequestId(person.bytes());
    move |m| {
        let from = ahead
            .iter()
            .filter_map(|(name, ahead)| {
                let state = m.producer(name).filter(|p| !p.finished)?;
                let set = state.mixtures.keys().max().copied().unwrap_or(0);
                Some((name.clone(), (state.next_seq + ahead).max(set)))
            })
            .collect();
        Entry::Mixture(Mixture {
            request,
            id: m.mixture().id + 1,
            from,
            spec: serde_json::json!({ "web": 1 }),
            why: None,
        })
    }
}

/// Builds the next stage, which begins for each producer that has not finished this many TGBs after its next.
fn stage(person: &Person, shared: &Shared, ahead: Seq) -> impl Fn(&Manifest) -> Entry + use<> {
    let request = RequestId(person.bytes());
    let producers = shared.plan.producers.iter();
    let names: Vec<_> = producers.map(|p| name(p.number)).collect();
    move |m| {
        let lanes = m.stream().order == StreamOrder::Lanes;
        let from = names.iter().filter_map(|name| {
            let next = match m.producer(name) {
                Some(state) if state.finished => return None,
                Some(state) => state.next_seq,
                None if lanes => 0,
                None => return None,
            };
            let set = m.stages_of(name).keys().max().copied().unwrap_or(0);
            Some((name.clone(), (next + ahead).max(set)))
        });
        let id = m.stages().newest() + 1;
        Entry::Stage(Stage {
            request,
            id,
            name: match "later".parse() {
                Ok(name) => name,
                Err(e) => unreachable!("{e}"),
            },
            from: from.collect(),
            // The TGBs of these worlds have one shape.
            rows_per_slice: 1,
            seq_len: 8,
            form: String::new(),
            fingerprint: Hash::sha256(&id.to_le_bytes()),
            mixture: None,
        })
    }
}
