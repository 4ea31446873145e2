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
        shared
            .store
            .note(&person.actor, format!("asks for {act:?}"));
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

/// Returns the producers whose objects have one TGB each, so that a mixture never begins within one.
pub(crate) fn whole_producers(shared: &Shared) -> impl Iterator<Item = ProducerName> {
    let whole = shared.plan.producers.iter().filter(|p| p.shared == 1);
    whole.map(|p| name(p.number))
}

/// Returns where a change begins that is to begin this many TGBs after the next one of a producer, and not before the
/// newest change.
fn begins(next: Seq, ahead: Seq, newest: Option<&Seq>) -> Seq {
    (next + ahead).max(newest.copied().unwrap_or(0))
}

/// Builds the next mixture, which begins this many TGBs after the next one of each of these producers that has opened
/// and not finished.
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
                let from = begins(state.next_seq, *ahead, state.mixtures.keys().max());
                Some((name.clone(), from))
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
                // A stage names all lanes, also those that never opened.
                None if lanes => 0,
                None => return None,
            };
            let from = begins(next, ahead, m.stages_of(name).keys().max());
            Some((name.clone(), from))
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
