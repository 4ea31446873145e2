//! The parts of a lifecycle world beside producers: jobs with their attempts, reclaimers, people.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::actor::Moment;
use crate::draw::Draw;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// The fault that ends an attempt early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptEnd {
    /// All its nodes die.
    Crash,
    /// One node dies at this request of its own, and the others with it.
    Dies(u64, Moment),
    /// A node freezes for this long, while another attempt takes its place.
    Freeze(Duration),
    /// Another attempt starts beside it.
    Doubled,
}

/// One attempt of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptPlan {
    /// The duration of its life.
    pub lives: Duration,
    pub fate: AttemptEnd,
    /// The restart point of the next attempt, counted from the last one.
    pub back: usize,
    /// Data-parallel size of the attempt.
    pub dp_size: u32,
    /// From its end to the start of the next attempt.
    pub restart: Duration,
    /// The requests before which its first node freezes, mostly while it opens, and for how long.
    pub stalls: Vec<(u64, Duration)>,
}

/// The plan of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPlan {
    /// Its number, which gives its name.
    pub number: u32,
    pub opens: Duration,
    /// The number of restart points that it keeps data for.
    pub keep: u32,
    /// True if the job protects data from reclamation.
    pub holds: bool,
    /// True if producers wait for the job.
    pub paces: bool,
    /// Seconds without activity after which a reclaimer closes it.
    pub lease_seconds: Option<u64>,
    /// True if one rank's mark counts for all.
    pub rank0: bool,
    /// The duration of one step.
    pub pace: Duration,
    /// The number of steps between marks.
    pub mark_every: u64,
    /// Steps between publications of progress.
    pub progress_every: u64,
    /// Attempts that end early; one more runs to the end.
    pub attempts: Vec<AttemptPlan>,
    /// The step at which it stops without closing.
    pub abandons: Option<u64>,
    /// True if it is closed when it is done.
    pub closes: bool,
    /// The rate, per 1000 steps, at which a rank ends and reconnects, to the same daemon or
    /// another.
    #[serde(default)]
    pub moves: u32,
    /// The machines, each with a daemon.
    #[serde(default)]
    pub daemons: Vec<DaemonPlan>,
    /// The drivers of the mixture by the losses of this job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<DriverPlan>,
}

/// The plan of a driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverPlan {
    /// Steps of a decision.
    pub every: u64,
    /// From one look to the next.
    pub poll: Duration,
    /// The request at which its n-th process dies.
    pub deaths: Vec<(u64, Moment)>,
    /// The requests before which each of its processes freezes, and for how long.
    pub stalls: Vec<(u64, Duration)>,
}

/// The daemon processes of a machine, one after another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonPlan {
    /// The request at which the n-th process dies.
    pub deaths: Vec<(u64, Moment)>,
    /// The times at which the running process ends; true for an orderly stop.
    pub ends: Vec<(Duration, bool)>,
    /// From the end of one process to the start of the next.
    pub restart: Duration,
    /// Steps read ahead of each rank.
    pub ahead: u64,
    /// The interval in which the store refuses its ledgers.
    pub refused: Option<(Duration, Duration)>,
}

/// The plan of a reclaimer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimerPlan {
    /// Its number, which gives its name.
    pub number: u32,
    /// From one pass to the next.
    pub every: Duration,
    /// The most deletions per pass.
    pub max_delete: u64,
    /// The rate, per 1000 passes, of a pause between planning and deleting.
    pub dawdles: u32,
    /// The longest such pause.
    pub dawdle: Duration,
    /// The request at which its n-th process dies.
    pub deaths: Vec<(u64, Moment)>,
    /// The requests before which each of its processes freezes, and for how long.
    pub stalls: Vec<(u64, Duration)>,
}

/// A command of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PersonCommand {
    /// Closes the job with this number.
    Close(u32),
    /// Moves the watermark to this many thousandths of the stream, if no job needs the data.
    ReclaimTo(u64),
    /// Excludes steps from future attempts: the first in thousandths of the head, and how many.
    Quarantine(u64, u64),
    /// Lifts the last quarantine.
    Lift,
}

/// The lifecycle part of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifecyclePlan {
    /// The bound of producers ahead of the slowest job that they wait for, in steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    pub jobs: Vec<JobPlan>,
    pub reclaimers: Vec<ReclaimerPlan>,
    /// The commands of people, with their times.
    pub deeds: Vec<(Duration, PersonCommand)>,
}

impl LifecyclePlan {
    /// Draws the lifecycle of a seed's world.
    pub fn draw(draw: &mut Draw) -> Self {
        let jobs = [1, 1, 2, 2, 3][draw.range(0..5) as usize];
        let reclaimers = [1, 2, 2, 3][draw.range(0..4) as usize];
        let deeds = draw.range(0..4);
        let mut life = Self {
            ahead: None,
            jobs: (0..jobs).map(|n| job(draw, n)).collect(),
            reclaimers: (0..reclaimers).map(|n| reclaimer(draw, n)).collect(),
            deeds: (0..deeds).map(|_| deed(draw, jobs)).collect(),
        };
        if draw.chance(350) {
            life.ahead = Some(draw.range(1..60));
            // A job that stops without closing would hold producers for ever, as intended.
            for job in &mut life.jobs {
                (job.abandons, job.closes) = (None, true);
            }
        }
        for job in &mut life.jobs {
            job.run_on_daemons(&mut Draw::new(draw.range(0..u64::MAX), "daemons", 0));
        }
        // The mixture is that of all producers, so one job drives it, mostly with one driver.
        if let Some(job) = life.jobs.first_mut() {
            let drivers = [0, 0, 0, 1, 1, 2][draw.range(0..6) as usize];
            job.drivers = (0..drivers).map(|_| driver(draw)).collect();
        }
        life
    }
}

impl JobPlan {
    /// Draws the machines, their faults, and the reconnects of ranks.
    fn run_on_daemons(&mut self, draw: &mut Draw) {
        self.moves = [0, 10, 60][draw.range(0..3) as usize];
        self.daemons = (0..draw.range(1..3)).map(|_| daemon(draw)).collect();
        for attempt in &mut self.attempts {
            // Coordinates that are not neighbours on their machine.
            if draw.chance(250) {
                attempt.dp_size = 4;
            }
        }
    }
}

fn daemon(draw: &mut Draw) -> DaemonPlan {
    let moment = |draw: &mut Draw| {
        [Moment::Before, Moment::Sent, Moment::Answered][draw.range(0..3) as usize]
    };
    let deaths = [0, 0, 1, 3][draw.range(0..4) as usize];
    let refused = draw.chance(400).then(|| {
        let from = draw.duration(Duration::ZERO, 20 * S);
        (from, from + draw.duration(50 * MS, 20 * S))
    });
    DaemonPlan {
        deaths: (0..deaths)
            .map(|_| (1 + (draw.exponential() * 60.0) as u64, moment(draw)))
            .collect(),
        ends: (0..draw.range(0..3))
            .map(|_| (draw.duration(Duration::ZERO, 30 * S), draw.chance(500)))
            .collect(),
        restart: [MS, 100 * MS, 2 * S][draw.range(0..3) as usize],
        ahead: [1, 4, 16][draw.range(0..3) as usize],
        refused,
    }
}

fn job(draw: &mut Draw, number: u32) -> JobPlan {
    let most = [20 * MS, 100 * MS, 400 * MS][draw.range(0..3) as usize];
    let mark_every = [1, 2, 3, 5, 10, 20][draw.range(0..6) as usize];
    JobPlan {
        number,
        opens: draw.duration(Duration::ZERO, 6 * S),
        keep: [1, 1, 2, 2, 3][draw.range(0..5) as usize],
        holds: draw.chance(850),
        paces: draw.chance(700),
        lease_seconds: draw.chance(200).then(|| draw.range(3..60)),
        rank0: draw.chance(300),
        pace: draw.duration(MS, most),
        mark_every,
        progress_every: [1, 1, 3, 10][draw.range(0..4) as usize],
        attempts: (0..draw.range(0..6)).map(|_| attempt(draw)).collect(),
        abandons: draw.chance(150).then(|| draw.range(1..60)),
        closes: draw.chance(500),
        moves: 0,
        daemons: Vec::new(),
        drivers: Vec::new(),
    }
}

fn attempt(draw: &mut Draw) -> AttemptPlan {
    let moment = [Moment::Before, Moment::Sent, Moment::Answered][draw.range(0..3) as usize];
    let frozen = [4 * S, 120 * S][draw.range(0..2) as usize];
    let fate = match draw.range(0..6) {
        0 | 1 => AttemptEnd::Crash,
        2 => AttemptEnd::Dies(1 + (draw.exponential() * 40.0) as u64, moment),
        3 | 4 => AttemptEnd::Freeze(draw.duration(S / 5, frozen)),
        _ => AttemptEnd::Doubled,
    };
    let most = [S / 2, 4 * S, 15 * S][draw.range(0..3) as usize];
    AttemptPlan {
        lives: draw.duration(Duration::ZERO, most),
        fate,
        // Mostly the last one; a start far back is refused now and then.
        back: [0, 0, 1, 1, 2, 6][draw.range(0..6) as usize],
        dp_size: 1 + draw.range(0..2) as u32,
        restart: [MS, 20 * MS, 500 * MS][draw.range(0..3) as usize],
        stalls: stalls(draw, 8.0),
    }
}

/// Draws freezes before some requests, on average the `mean`-th.
fn stalls(draw: &mut Draw, mean: f64) -> Vec<(u64, Duration)> {
    let stall = |draw: &mut Draw| {
        let request = 1 + (draw.exponential() * mean) as u64;
        let most = [2 * S, 60 * S][draw.range(0..2) as usize];
        (request, draw.duration(S / 10, most))
    };
    (0..draw.range(0..3)).map(|_| stall(draw)).collect()
}

fn reclaimer(draw: &mut Draw, number: u32) -> ReclaimerPlan {
    let moment = |draw: &mut Draw| {
        [Moment::Before, Moment::Sent, Moment::Answered][draw.range(0..3) as usize]
    };
    ReclaimerPlan {
        number,
        every: [100 * MS, 500 * MS, 3 * S][draw.range(0..3) as usize],
        max_delete: [1, 5, 1000, 1000][draw.range(0..4) as usize],
        dawdles: [0, 100, 500][draw.range(0..3) as usize],
        dawdle: draw.duration(MS, 20 * S),
        deaths: (0..draw.range(0..4))
            .map(|_| (1 + (draw.exponential() * 40.0) as u64, moment(draw)))
            .collect(),
        stalls: stalls(draw, 80.0),
    }
}

fn driver(draw: &mut Draw) -> DriverPlan {
    let moment = |draw: &mut Draw| {
        [Moment::Before, Moment::Sent, Moment::Answered][draw.range(0..3) as usize]
    };
    DriverPlan {
        every: draw.range(2..8),
        poll: [50 * MS, 300 * MS, S][draw.range(0..3) as usize],
        deaths: (0..draw.range(0..4))
            .map(|_| (1 + (draw.exponential() * 60.0) as u64, moment(draw)))
            .collect(),
        stalls: stalls(draw, 60.0),
    }
}

fn deed(draw: &mut Draw, jobs: u32) -> (Duration, PersonCommand) {
    let deed = match draw.range(0..5) {
        0 => PersonCommand::Close(draw.range(0..u64::from(jobs)) as u32),
        1 => PersonCommand::ReclaimTo(draw.range(0..1001)),
        2 | 3 => PersonCommand::Quarantine(draw.range(0..1300), draw.range(1..8)),
        _ => PersonCommand::Lift,
    };
    (draw.duration(S, 40 * S), deed)
}
