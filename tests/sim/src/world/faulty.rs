//! A faulty program beside correct ones. It folds the log as they do, and then puts a record that no
//! correct writer makes: its entries are void, or readers stop at it until a person repairs it. Or it
//! leaves half an object behind.

use std::sync::Arc;
use std::time::Duration;

use batchweave_core::ids::{CommitId, Hash, StreamId};
use batchweave_core::keys;
use batchweave_core::manifest::entry::{BatchEntry, Finished};
use batchweave_core::manifest::state::ProducerState;
use batchweave_core::manifest::{Entry, Hints, Manifest, Record, Writer};
use batchweave_log::repair::{Remedy, Repaired, damage, repair};
use batchweave_store::ErrorKind;
use bytes::Bytes;

use super::content::{cursor, tgbs};
use super::forward::options;
use super::shared::{Shared, name};
use crate::plan::mischief::Mischief;
use crate::world::person::Person;

/// The name of the faulty actor.
pub(crate) const FAULTY: &str = "faulty";
/// The limit of polls for a repair of the log.
const REPAIRS_MAX: u32 = 100;

/// Writes the plan's invalid records, and repairs the log after them as a person would.
pub(super) async fn spoil(shared: Arc<Shared>) {
    let faulty = Person::new(&shared, FAULTY);
    let repairer = Person::new(&shared, "repairer");
    for (at, mischief) in shared.plan.mischief.clone() {
        shared.store.time.sleep_until(at).await;
        let Some(manifest) = folded(&faulty).await else {
            continue;
        };
        if mischief == Mischief::Debris {
            debris(&faulty, &manifest).await;
        } else {
            let half = mischief == Mischief::HalfRecord;
            let bytes = record(&faulty, &manifest, mischief);
            let bytes = if half {
                &bytes[..bytes.len() / 2]
            } else {
                &bytes
            };
            let key = keys::log(manifest.next_version());
            put(&faulty, &key, Bytes::copy_from_slice(bytes)).await;
        }
        shared.store.note(&faulty.actor, format!("{mischief:?}"));
        if mischief.stops() {
            repairer.sleep(Duration::from_secs(3)).await;
            mend(&shared, &repairer).await;
        }
    }
}

async fn folded(faulty: &Person) -> Option<Manifest> {
    for _ in 0..REPAIRS_MAX {
        if let Ok(log) = faulty.log().await {
            return Some(log.manifest().clone());
        }
        faulty.sleep(Duration::from_millis(500)).await;
    }
    None
}

/// Retries a put until an object is certainly there, its own or another.
async fn put(faulty: &Person, key: &str, bytes: Bytes) {
    while let Err(e) = faulty.store.create(key, bytes.clone()).await {
        if e.kind == ErrorKind::Denied {
            return;
        }
        faulty.sleep(Duration::from_millis(200)).await;
    }
}

fn record(faulty: &Person, m: &Manifest, mischief: Mischief) -> Vec<u8> {
    let plans = &faulty.shared.plan.producers;
    let mut victims = plans.iter().filter_map(|p| {
        let name = name(p.number);
        let state = m.producer(&name).filter(|state| !state.finished)?;
        Some((name, state))
    });
    let victim = victims.next_back();
    let entries = victim.map(|(name, state)| entry(mischief, name, state));
    let mut record = Record {
        format: 1,
        stream: m.stream_id(),
        version: m.next_version(),
        prev: m.prev(),
        view: m.view(),
        commit: CommitId(faulty.bytes()),
        writer: Writer {
            name: FAULTY.to_owned(),
            epoch: 0,
        },
        hints: Hints::default(),
        entries: entries.into_iter().flatten().collect(),
    };
    match mischief {
        Mischief::ForeignStream => record.stream = StreamId::from_random(faulty.bytes()),
        Mischief::WrongPrev => record.prev = Hash::sha256(b"another record"),
        Mischief::WrongView => record.view = Hash::sha256(b"another view"),
        _ => {}
    }
    record.to_json()
}

/// Returns an entry that breaks one rule, or none if the record itself is to be invalid.
fn entry(
    mischief: Mischief,
    producer: batchweave_core::ids::ProducerName,
    state: &ProducerState,
) -> Option<Entry> {
    let (mut epoch, mut first_seq) = (state.epoch, state.next_seq);
    let (mut last_seq, mut object_last) = (first_seq, first_seq);
    let mut before = state.cursor.hash();
    match mischief {
        Mischief::OldEpoch => epoch = epoch.saturating_sub(1),
        Mischief::WrongSeq => {
            (first_seq, last_seq, object_last) = (first_seq + 3, last_seq + 3, last_seq + 3)
        }
        Mischief::WrongCursor => before = Hash::sha256(b"another cursor"),
        Mischief::HalfObject => object_last += 1,
        Mischief::WrongFinish => {
            return Some(Entry::Finished(Finished {
                producer,
                epoch,
                final_seq: first_seq + 1,
            }));
        }
        _ => return None,
    }
    let key = keys::data(
        &producer,
        epoch,
        state.nonce,
        (first_seq, object_last),
        0,
        0,
    );
    Some(Entry::Batch(BatchEntry {
        first_seq,
        last_seq,
        epoch,
        cursor_before: before,
        cursor: cursor(last_seq + 1),
        mixture: 0,
        stage: 0,
        first_step: None,
        tgbs: tgbs(&producer, &key, first_seq, 1),
        producer,
    }))
}

async fn debris(faulty: &Person, m: &Manifest) {
    let producer = name(faulty.shared.plan.producers[0].number);
    let half = |bytes: Vec<u8>| Bytes::copy_from_slice(&bytes[..bytes.len() / 2]);
    let (_, snapshot) = m.snapshot().unwrap_or_default();
    let segment = keys::segment(m.next_step() / batchweave_core::limits::SEGMENT_STEPS);
    for (key, bytes) in [
        (
            keys::intent(&producer, 1, 0, 0),
            b"{\"format\":1,\"stream".to_vec(),
        ),
        (keys::snapshot(m.next_version() + 40), snapshot.clone()),
        (segment, snapshot),
    ] {
        put(faulty, &key, half(bytes)).await;
    }
}

/// Repairs the log until it folds to its head.
async fn mend(shared: &Arc<Shared>, person: &Person) {
    for _ in 0..REPAIRS_MAX {
        let options = options(shared, &person.actor, false);
        let done = match damage(&person.store, &options).await {
            Ok(None) => return,
            Ok(Some(damage)) => {
                let options = self::options(shared, &person.actor, false);
                repair(&person.store, &damage, "a faulty program", &options).await
            }
            Err(e) => Err(e),
        };
        // Wrong reads and failures pass; a completed repair shows at the next poll.
        let text = match done {
            Ok(Repaired::Refused(remedy)) if remedy != Remedy::Unsteady => {
                Some(format!("a repair was refused: {remedy:?}"))
            }
            _ => None,
        };
        if let Some(text) = text {
            return shared.found("repair", person.actor.id, text);
        }
        person.sleep(Duration::from_millis(500)).await;
    }
    let text = format!("the log does not fold after {REPAIRS_MAX} looks");
    shared.found("repair", person.actor.id, text);
}
