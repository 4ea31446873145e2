//! The fault matrix: daemon, rank, store, and the connections between them are killed, frozen or cut at
//! a random instant, round after round. Afterwards each rank has received each of its slices once, bit
//! by bit as in an undisturbed run; no call waited longer than its time-out; and no session, frame,
//! descriptor or process is left.
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

/// The number of steps that one round reads.
const STEPS: u64 = 60;
/// The time that a rank trains at each step.
const STEP_TIME: Duration = Duration::from_millis(4);
/// Longer than a healthy round takes on a slow machine.
const ROUND: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, Copy)]
enum Victim {
    Daemon,
    Rank,
    Store,
    /// The connections between ranks and daemon.
    Socket,
    /// The connections between daemon and store.
    Wire,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// SIGKILL, or a cut connection.
    Kill,
    /// SIGSTOP and SIGCONT, or a connection that passes nothing for a while.
    Freeze,
}

const CELLS: [(Victim, Fault); 10] = [
    (Victim::Daemon, Fault::Kill),
    (Victim::Daemon, Fault::Freeze),
    (Victim::Rank, Fault::Kill),
    (Victim::Rank, Fault::Freeze),
    (Victim::Store, Fault::Kill),
    (Victim::Store, Fault::Freeze),
    (Victim::Socket, Fault::Kill),
    (Victim::Socket, Fault::Freeze),
    (Victim::Wire, Fault::Kill),
    (Victim::Wire, Fault::Freeze),
];

struct Matrix {
    place: Place,
    rng: StdRng,
    /// The state after the last step that all ranks have read.
    state: Option<String>,
}

impl Matrix {
    fn round(&mut self, number: u64, (victim, fault): (Victim, Fault)) -> String {
        let began = Instant::now();
        let (at, lasts) = (
            Duration::from_millis(self.rng.random_range(0..450)),
            Duration::from_millis(self.rng.random_range(0..1200)),
        );
        let text = format!("round {number}: {victim:?} {fault:?} at {at:?}, for {lasts:?}");
        let first = number * STEPS;
        let mut readers = Readers::start(&self.place, number, first, self.state.as_ref());
        std::thread::sleep(at);
        match (victim, fault) {
            (Victim::Daemon, Fault::Kill) => self.place.restart_daemon(lasts),
            (Victim::Daemon, Fault::Freeze) => freeze(&self.place.daemon, lasts),
            (Victim::Store, Fault::Kill) => self.place.restart_store(lasts),
            (Victim::Store, Fault::Freeze) => freeze(&self.place.store, lasts),
            (Victim::Socket, Fault::Kill) => self.place.socket.cut(),
            (Victim::Socket, Fault::Freeze) => self.place.socket.freeze(lasts),
            (Victim::Wire, Fault::Kill) => self.place.wire.cut(),
            (Victim::Wire, Fault::Freeze) => self.place.wire.freeze(lasts),
            (Victim::Rank, fault) => {
                let which = self.rng.random_range(0..readers.count());
                match fault {
                    Fault::Kill => readers.restart(&self.place, which, lasts),
                    Fault::Freeze => freeze(readers.process(which), lasts),
                }
            }
        }
        self.state = readers.end(&self.place, began + ROUND, &text);
        self.place.is_clean(&text);
        format!("{text}: {:?}", began.elapsed())
    }
}

fn freeze(process: &batchweave_tests::Process, lasts: Duration) {
    process.signal("STOP");
    std::thread::sleep(lasts);
    process.signal("CONT");
}

#[test]
fn data_is_the_same_and_nothing_leaks_after_any_loss() {
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
        let text = matrix.round(number as u64, *cell);
        eprintln!("{text}");
    }
    matrix.place.stop();
    eprintln!(
        "{} rounds in {:?}; seed {seed}; {}",
        cells.len(),
        began.elapsed(),
        matrix.place.python_told()
    );
}
