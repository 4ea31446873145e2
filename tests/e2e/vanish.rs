//! The vanishing matrix: daemon, rank, store, and the connections between them are killed, frozen or
//! cut at a random instant, round after round. Afterwards each rank has had each of its slices once,
//! bit by bit as in an undisturbed run; no call waited beyond its time-out; and nothing is left: no
//! session, no frame, no descriptor, no process.
//!
//! 10 rounds, each cell once; with `BATCHWEAVE_LONG=1` 200.

mod place;
mod rank;
mod readers;
mod wires;

use std::time::{Duration, Instant};

use batchweave_tests::seed;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use place::Place;
use readers::Readers;

/// Steps that one round reads.
const STEPS: u64 = 60;
/// What a rank trains at each.
const STEP_TIME: Duration = Duration::from_millis(4);
/// No healthy round takes longer, on a slow machine either.
const ROUND: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, Copy)]
enum Victim {
    Daemon,
    Rank,
    Store,
    /// Between ranks and daemon.
    Socket,
    /// Between daemon and store.
    Wire,
}

#[derive(Debug, Clone, Copy)]
enum Blow {
    /// SIGKILL, or a cut.
    Kill,
    /// SIGSTOP and SIGCONT, or nothing passes for a while.
    Freeze,
}

const CELLS: [(Victim, Blow); 10] = [
    (Victim::Daemon, Blow::Kill),
    (Victim::Daemon, Blow::Freeze),
    (Victim::Rank, Blow::Kill),
    (Victim::Rank, Blow::Freeze),
    (Victim::Store, Blow::Kill),
    (Victim::Store, Blow::Freeze),
    (Victim::Socket, Blow::Kill),
    (Victim::Socket, Blow::Freeze),
    (Victim::Wire, Blow::Kill),
    (Victim::Wire, Blow::Freeze),
];

struct Matrix {
    place: Place,
    rng: StdRng,
    /// State after the last step that all ranks have read.
    state: Option<String>,
}

impl Matrix {
    fn round(&mut self, number: u64, (victim, blow): (Victim, Blow)) -> String {
        let began = Instant::now();
        let (at, lasts) = (
            Duration::from_millis(self.rng.random_range(0..450)),
            Duration::from_millis(self.rng.random_range(0..1200)),
        );
        let told = format!("round {number}: {victim:?} {blow:?} at {at:?}, for {lasts:?}");
        let first = number * STEPS;
        let mut readers = Readers::start(&self.place, number, first, self.state.as_ref());
        std::thread::sleep(at);
        match (victim, blow) {
            (Victim::Daemon, Blow::Kill) => self.place.restart_daemon(lasts),
            (Victim::Daemon, Blow::Freeze) => freeze(&self.place.daemon, lasts),
            (Victim::Store, Blow::Kill) => self.place.restart_store(lasts),
            (Victim::Store, Blow::Freeze) => freeze(&self.place.store, lasts),
            (Victim::Socket, Blow::Kill) => self.place.socket.cut(),
            (Victim::Socket, Blow::Freeze) => self.place.socket.freeze(lasts),
            (Victim::Wire, Blow::Kill) => self.place.wire.cut(),
            (Victim::Wire, Blow::Freeze) => self.place.wire.freeze(lasts),
            (Victim::Rank, blow) => {
                let which = self.rng.random_range(0..readers.count());
                match blow {
                    Blow::Kill => readers.restart(&self.place, which, lasts),
                    Blow::Freeze => freeze(readers.process(which), lasts),
                }
            }
        }
        self.state = readers.end(&self.place, began + ROUND, &told);
        self.place.is_clean(&told);
        format!("{told}: {:?}", began.elapsed())
    }
}

fn freeze(process: &batchweave_tests::Process, lasts: Duration) {
    process.signal("STOP");
    std::thread::sleep(lasts);
    process.signal("CONT");
}

#[test]
fn whatever_vanishes_the_data_is_the_same_and_nothing_leaks() {
    let long = std::env::var("BATCHWEAVE_LONG").is_ok_and(|v| v == "1");
    let each = if long { 20 } else { 1 };
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut cells: Vec<_> = CELLS.iter().copied().cycle().take(10 * each).collect();
    cells.shuffle(&mut rng);
    let began = Instant::now();
    let place = Place::new(cells.len() as u64 * STEPS);
    let mut matrix = Matrix {
        place,
        rng,
        state: None,
    };
    for (number, cell) in cells.iter().enumerate() {
        let told = matrix.round(number as u64, *cell);
        eprintln!("{told}");
    }
    matrix.place.stop();
    eprintln!(
        "{} rounds in {:?}; seed {seed}; {}",
        cells.len(),
        began.elapsed(),
        matrix.place.python_told()
    );
}
