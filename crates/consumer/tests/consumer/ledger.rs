//! The ledgers of a run with restarts, changing worlds and kills suffice to prove it.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};

use batchweave_client::{Client, ConnectOptions, Start};
use batchweave_core::ids::{AttemptNo, JobName, Step};
use batchweave_core::keys;
use batchweave_core::manifest::Manifest;
use batchweave_core::proof::{
    Contradiction, History, JobRecord, Ledger, LedgerPlace, Leg, LegProof, LegStates, LegTraining,
    LoggedTgb, ProvenLeg,
};
use batchweave_store::Store;
use batchweave_store::memory::MemoryStore;
use tokio::task::JoinHandle;

use crate::serving::{TIMEOUT, options};
use crate::support::{Daemon, Stream, consumer};

const SLICES: u32 = 4;
/// The number of steps between checkpoints.
const EVERY: Step = 40;

/// Trains one data coordinate to `end`, reports each step, and marks every `EVERY` steps; returns the state of the last mark. With
/// `together` all coordinates take each step together.
fn train(
    options: ConnectOptions,
    end: Step,
    together: Arc<Barrier>,
    close: bool,
) -> JoinHandle<String> {
    tokio::task::spawn_blocking(move || {
        let mut reader = Client::connect(options).unwrap();
        let mut state = reader.state_dict();
        while reader.next_step() < end {
            let Some(batch) = reader.next(TIMEOUT).unwrap() else {
                break;
            };
            reader.report(batch.step(), None).unwrap();
            if (batch.step() + 1) % EVERY == 0 {
                state = batch.state_dict();
                reader.checkpoint(&state).unwrap();
            }
            together.wait();
        }
        if close {
            reader.close(TIMEOUT).unwrap();
        }
        state
    })
}

/// An attempt of `dp` coordinates that trains from `state` to `end`.
pub(crate) fn attempt(
    daemon: &Daemon,
    id: u8,
    dp: u32,
    state: &str,
    end: Step,
    close: bool,
) -> Vec<JoinHandle<String>> {
    let together = Arc::new(Barrier::new(dp as usize));
    let rank = |rank| {
        let mut options = options(&daemon.socket, rank, dp, 0);
        options.attempt = Some(format!("{id:02x}").repeat(16));
        if !state.is_empty() {
            options.start = Start::State(state.to_owned());
        }
        train(options, end, Arc::clone(&together), close)
    };
    (0..dp).map(rank).collect()
}

pub(crate) async fn last_state(ranks: Vec<JoinHandle<String>>) -> String {
    let mut state = String::new();
    for rank in ranks {
        state = rank.await.unwrap();
    }
    state
}

/// The log folded from its first record, and all ledgers.
pub(crate) struct Seen {
    job: JobRecord,
    named: Vec<LoggedTgb>,
    ledgers: BTreeMap<AttemptNo, Vec<(String, Ledger)>>,
}

impl Seen {
    pub(crate) async fn read(store: &Arc<MemoryStore>, stream: &Stream) -> Self {
        let json = store.get(keys::STREAM, u64::MAX).await.unwrap();
        let mut manifest = Manifest::new(stream.config.clone(), &json);
        let (mut history, mut named) = (History::default(), Vec::new());
        while let Ok(bytes) = store
            .get(&keys::log(manifest.next_version()), u64::MAX)
            .await
        {
            let version = manifest.next_version();
            let folded = manifest.fold(&bytes).unwrap();
            history.note(version, &folded);
            named.extend(folded.placed.iter().map(|s| LoggedTgb {
                digest: s.tgb.digest,
                version: s.version,
            }));
        }
        assert_eq!(manifest.void_entries(), 0);
        let name: JobName = "llm".parse().unwrap();
        let job = history.job(&name, None).unwrap().clone();
        let mut ledgers: BTreeMap<AttemptNo, Vec<(String, Ledger)>> = BTreeMap::new();
        for key in store.keys() {
            let Some(at) = keys::parse_ledger(&key) else {
                continue;
            };
            let place = LedgerPlace {
                stream: stream.config.stream_id,
                job: &name,
                opened: job.opened,
                attempt: at.owner.attempt,
            };
            let bytes = store.get(&key, u64::MAX).await.unwrap();
            let ledger = Ledger::from_json(&bytes, &key, &place).unwrap();
            let all = ledgers.entry(at.owner.attempt).or_default();
            all.push((key, ledger));
        }
        for all in ledgers.values_mut() {
            all.sort_by_key(|(key, ledger)| (ledger.first(), key.clone()));
        }
        Self {
            job,
            named,
            ledgers,
        }
    }

    pub(crate) fn prove(&self) -> Result<Vec<ProvenLeg>, Contradiction> {
        let legs = self.job.lineage().unwrap();
        legs.into_iter().map(|leg| self.prove_leg(leg)).collect()
    }

    /// The states that ranks reported, of each leg up to its end; of the newest one up to `end`.
    pub(crate) fn trained(&self, end: Step) -> Vec<LegStates> {
        let leg = |leg: Leg| {
            let mut training = LegTraining::new(self.job.attempt(leg.attempt).unwrap());
            for (key, ledger) in &self.ledgers[&leg.attempt] {
                training.add(key, &ledger.states).unwrap();
            }
            training.finish(leg.from, leg.to.unwrap_or(end))
        };
        self.job.lineage().unwrap().into_iter().map(leg).collect()
    }

    /// The number of trained steps in all ledgers, each as often as it is stored.
    pub(crate) fn stored_states(&self) -> u64 {
        let ledgers = self.ledgers.values().flatten();
        let trained = ledgers.flat_map(|(_, ledger)| &ledger.states);
        let ranges = trained.flat_map(|states| &states.trained);
        ranges.map(|(from, to)| to - from).sum()
    }

    fn prove_leg(&self, leg: Leg) -> Result<ProvenLeg, Contradiction> {
        let log = |step: Step| self.named.get(step as usize).copied();
        let attempt = self.job.attempt(leg.attempt).unwrap();
        let mut proof = LegProof::new(attempt, leg, SLICES);
        let ledgers = self
            .ledgers
            .get(&leg.attempt)
            .map_or(&[][..], Vec::as_slice);
        for (n, (key, ledger)) in ledgers.iter().enumerate() {
            proof.add(key, ledger.clone())?;
            if let Some((_, next)) = ledgers.get(n + 1) {
                proof.settle(next.first(), &log)?;
            }
        }
        let proven = proof.finish(Some(0), &log)?;
        assert!(proven.holes.is_empty(), "{proven:?}");
        Ok(proven)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_restarts_other_worlds_and_kills_is_proved_by_its_ledgers() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(SLICES).await;
    stream.commit(900, 9).await;
    stream.finish().await;
    let store = stream.store.clone();
    let start = || Daemon::start(store.clone(), consumer(dir.path()));
    let mut daemon = start();

    // Each attempt trains beyond the checkpoint from which the next one starts.
    let state = last_state(attempt(&daemon, 1, 4, "", 150, true)).await;
    let state = last_state(attempt(&daemon, 2, 2, &state, 290, false)).await;
    // The daemon is killed while ranks read, twice, the second time before any mark.
    let ranks = attempt(&daemon, 3, 4, &state, 500, true);
    for _ in 0..2 {
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        daemon.kill().await;
        daemon = start();
    }
    let state = last_state(ranks).await;
    // Not marked, so these steps are trained again.
    let _ = last_state(attempt(&daemon, 4, 1, &state, 485, true)).await;
    daemon.stop().await.unwrap();
    daemon = start();
    let state = last_state(attempt(&daemon, 5, 4, &state, 700, true)).await;
    let _ = last_state(attempt(&daemon, 6, 2, &state, 900, true)).await;
    daemon.stop().await.unwrap();

    let seen = Seen::read(&store, &stream).await;
    let proven = seen.prove().unwrap();
    let legs: Vec<_> = proven
        .iter()
        .map(|p| (p.leg.attempt, p.leg.from, p.end, p.dp_size, p.steps))
        .collect();
    let expected = [
        (0, 0, 120, 4, 120),
        (1, 120, 280, 2, 160),
        (2, 280, 480, 4, 200),
        (4, 480, 680, 4, 200),
        (5, 680, 900, 2, 220),
    ];
    assert_eq!(legs, expected);
    let trained: Vec<_> = seen
        .trained(900)
        .into_iter()
        .map(|leg| (leg.trained, leg.missing, leg.differing))
        .collect();
    let all = expected.map(|leg| (leg.4, Vec::new(), Vec::new()));
    assert_eq!(trained, all);
    assert_eq!(proven[0].thrown_away, 4 * 30, "what is behind a checkpoint");
    assert_eq!(seen.job.attempts.len(), 6);

    // Ledgers are stored before marks, so no mark lies above the recorded steps.
    for key in store.keys() {
        let Some(mark) = keys::parse_mark(&key) else {
            continue;
        };
        let of = |l: &(String, Ledger)| {
            let own =
                l.1.entries
                    .iter()
                    .filter(|e| Some(e.dp_rank) == mark.coordinate);
            own.map(|e| e.to).max()
        };
        let told = seen.ledgers[&mark.owner.attempt]
            .iter()
            .filter_map(of)
            .max();
        assert!(told >= Some(mark.step), "{key}: told up to {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_goes_back_in_its_attempt_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(SLICES).await;
    stream.commit(60, 9).await;
    stream.finish().await;
    let daemon = Daemon::start(stream.store.clone(), consumer(dir.path()));
    let together = Arc::new(Barrier::new(1));
    let _ = train(options(&daemon.socket, 0, 1, 0), 50, together.clone(), true)
        .await
        .unwrap();
    let mut back = options(&daemon.socket, 0, 1, 20);
    back.resume = true;
    let _ = train(back, 60, together, true).await.unwrap();
    daemon.stop().await.unwrap();
    let mut seen = Seen::read(&stream.store, &stream).await;
    let proven = seen.prove().unwrap();
    assert_eq!((proven[0].end, proven[0].again), (60, 30));
    // Without the flag it is a step that was received twice.
    for (_, ledger) in seen.ledgers.get_mut(&0).unwrap() {
        ledger.entries.iter_mut().for_each(|e| e.resumed = false);
    }
    let error = seen.prove().unwrap_err().to_string();
    assert!(error.contains("doubled step"), "{error}");
}

/// Recording again would mean reading again, and the data may be deleted by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_an_older_ledger_tells_of_is_not_told_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut stream = Stream::new(SLICES).await;
    stream.commit(100, 9).await;
    stream.finish().await;
    let store = stream.store.clone();
    let start = || Daemon::start(store.clone(), consumer(dir.path()));
    let daemon = start();
    let _ = last_state(attempt(&daemon, 1, 2, "", 20, true)).await;
    daemon.stop().await.unwrap();
    // The first daemon records both ranks up to step 20. The newest object of the second one has an entry of rank 0
    // only.
    let back = |daemon: &Daemon, rank, from, end| {
        let mut options = options(&daemon.socket, rank, 2, from);
        options.attempt = Some("01".repeat(16));
        options.resume = true;
        train(options, end, Arc::new(Barrier::new(1)), true)
    };
    let daemon = start();
    let _ = back(&daemon, 1, 20, 40).await.unwrap();
    let _ = back(&daemon, 0, 20, 60).await.unwrap();
    daemon.stop().await.unwrap();
    let daemon = start();
    let _ = back(&daemon, 1, 40, 60).await.unwrap();
    daemon.stop().await.unwrap();

    let seen = Seen::read(&store, &stream).await;
    let proven = seen.prove().unwrap();
    assert_eq!((proven[0].end, proven[0].again), (60, 0));
    for step in 0..60 {
        for rank in 0..2 {
            let all = seen.ledgers[&0].iter().flat_map(|(_, l)| &l.entries);
            let of = all.filter(|e| e.dp_rank == rank && (e.from..e.to).contains(&step));
            assert_eq!(of.count(), 1, "step {step} of coordinate {rank}");
        }
    }
}

/// The other daemon records the rank after this one has read the stored ledgers for a rank of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_comes_from_another_daemon_is_not_told_again() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut stream = Stream::new(SLICES).await;
    stream.commit(60, 9).await;
    stream.finish().await;
    let store = stream.store.clone();
    let other = Daemon::start(store.clone(), consumer(there.path()));
    let daemon = Daemon::start(store.clone(), consumer(here.path()));
    let alone = || Arc::new(Barrier::new(1));
    let moves = train(options(&other.socket, 0, 2, 0), 20, alone(), true);
    let stays = options(&daemon.socket, 1, 2, 0);
    let read = |mut reader: batchweave_client::Reader, end: Step| {
        tokio::task::spawn_blocking(move || {
            while reader.next_step() < end {
                drop(reader.next(TIMEOUT).unwrap().unwrap());
            }
            reader
        })
    };
    let connected = tokio::task::spawn_blocking(|| Client::connect(stays).unwrap());
    let stays = read(connected.await.unwrap(), 20).await.unwrap();
    let _ = moves.await.unwrap();
    other.stop().await.unwrap();
    let mut back = options(&daemon.socket, 0, 2, 20);
    back.resume = true;
    let _ = train(back, 60, alone(), true).await.unwrap();
    let stays = read(stays, 60).await.unwrap();
    tokio::task::spawn_blocking(|| stays.close(TIMEOUT).unwrap())
        .await
        .unwrap();
    daemon.stop().await.unwrap();

    let seen = Seen::read(&store, &stream).await;
    for step in 0..60 {
        let all = seen.ledgers[&0].iter().flat_map(|(_, l)| &l.entries);
        let of = all.filter(|e| e.dp_rank == 0 && (e.from..e.to).contains(&step));
        assert_eq!(of.count(), 1, "step {step}");
    }
}
