//! The plan of a world, drawn from a seed. A plan is data, so that a failing one can be printed and
//! made smaller piece by piece.
//!
//! - `mischief`: invalid records of a faulty program; `operator`: commands of an operator;
//! - `lifecycle`: jobs, reclaimers and people.

pub mod lifecycle;
pub mod mischief;
pub mod operator;

use std::time::Duration;

use batchweave_core::stream::StreamOrder;
use serde::{Deserialize, Serialize};

use self::lifecycle::LifecyclePlan;
use self::mischief::Mischief;
use self::operator::OperatorCommand;
use crate::actor::Moment;
use crate::clock::{Jump, Skew};
use crate::draw::Draw;
use crate::policy::PolicyKind;
use crate::store::link::LinkPlan;
use crate::store::outcome::Rates;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// The plan of a producer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProducerPlan {
    /// Its number, which gives its name.
    pub number: u32,
    pub policy: PolicyKind,
    /// The number of TGBs in its input.
    pub tgbs: u64,
    /// The most TGBs in one object.
    pub shared: u64,
    /// The mean time to make an object.
    pub every: Duration,
    /// The factor by which its requests are slower than those of others.
    pub slow: f64,
    pub skew: Skew,
    /// The most TGBs in one entry.
    pub per_entry: usize,
    /// From the end of one process to the start of the next.
    pub restart: Duration,
}

/// The death of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crash {
    pub producer: u32,
    /// The number of its process, from 0.
    pub process: u32,
    /// The request, from 1.
    pub request: u64,
    /// The point of the request.
    pub moment: Moment,
}

/// A freeze of a process, which is a zombie when another takes its place meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Freeze {
    /// The producer whose newest process freezes.
    pub producer: u32,
    pub at: Duration,
    /// The duration of the freeze.
    pub lasts: Duration,
    /// The time after which another process is started in its place.
    pub taken_over: Option<Duration>,
}

/// A process that follows the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReaderPlan {
    /// Its number, which gives its name.
    pub number: u32,
    pub starts: Duration,
    /// The interval of its polls.
    pub every: Duration,
    /// True if it writes missing snapshots.
    pub writes: bool,
}

/// The plan of a world.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The seed of all random draws in the run.
    pub seed: u64,
    pub order: StreamOrder,
    /// True if stream.json names the producers.
    pub named: bool,
    /// The name of the store's profile.
    pub profile: String,
    pub rates: Rates,
    #[serde(default)]
    pub link: LinkPlan,
    /// No faults happen from this time on, so that every world ends.
    pub calm_at: Duration,
    pub producers: Vec<ProducerPlan>,
    pub crashes: Vec<Crash>,
    pub freezes: Vec<Freeze>,
    pub readers: Vec<ReaderPlan>,
    /// The time at which a person seals the stream for good.
    pub sealed_at: Option<Duration>,
    /// The commands of an operator, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acts: Vec<(Duration, OperatorCommand)>,
    /// The invalid records of a faulty program, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mischief: Vec<(Duration, Mischief)>,
    /// Producers that get a second process this long after the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub twins: Vec<(u32, Duration)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<LifecyclePlan>,
}

impl Plan {
    /// Returns true if all reads return the bytes that correct writers wrote.
    pub(crate) fn is_honest(&self) -> bool {
        self.link.lies == 0 && self.link.bad_connections == 0 && !self.stops()
    }

    /// Returns true if readers stop at some record until it is repaired.
    pub(crate) fn stops(&self) -> bool {
        self.mischief.iter().any(|(_, mischief)| mischief.stops())
    }

    /// Draws the world of a seed.
    pub fn draw(seed: u64) -> Self {
        let draw = &mut Draw::new(seed, "plan", 0);
        let lanes = draw.chance(400);
        let long = draw.chance(60);
        // All producers write at once without a pause: announcing, leading, combining.
        let busy = draw.chance(300);
        let count = if busy {
            draw.range(5..9)
        } else {
            draw.range(2..7)
        } as u32;
        let calm_at = draw.duration(5 * S, 120 * S);
        let mut plan = Self {
            seed,
            order: if lanes {
                StreamOrder::Lanes
            } else {
                StreamOrder::Arrival
            },
            named: lanes || draw.chance(600),
            profile: if draw.chance(500) {
                "s3-standard"
            } else {
                "s3-express"
            }
            .to_owned(),
            rates: rates(draw),
            link: LinkPlan::draw(&mut Draw::new(seed, "link", 0)),
            calm_at,
            producers: (0..count).map(|n| producer(draw, n, long, busy)).collect(),
            crashes: crashes(draw, count),
            freezes: freezes(draw, count, calm_at),
            readers: (0..draw.range(1..3) as u32)
                .map(|n| reader(draw, n))
                .collect(),
            sealed_at: draw.chance(80).then(|| draw.duration(S, 30 * S)),
            acts: Vec::new(),
            mischief: mischief::draw(&mut Draw::new(seed, "mischief", 0)),
            twins: twins(&mut Draw::new(seed, "twins", 0), count),
            life: None,
        };
        let producers: Vec<_> = plan.producers.iter().map(|p| p.number).collect();
        plan.acts = operator::draw(&mut Draw::new(seed, "acts", 0), &producers);
        let seals = |(_, act): &(_, _)| *act == OperatorCommand::Seal;
        if plan.acts.iter().any(seals) {
            plan.sealed_at = None;
        }
        plan
    }

    /// Draws the lifecycle world of a seed: that of [`Self::draw`] with jobs, reclaimers and
    /// people.
    pub fn draw_lifecycle(seed: u64) -> Self {
        let mut plan = Self::draw(seed);
        // Trainers replace the readers. A freeze of hours would only make all others wait.
        plan.readers.clear();
        for freeze in &mut plan.freezes {
            freeze.lasts = freeze.lasts.min(300 * S);
        }
        plan.life = Some(LifecyclePlan::draw(&mut Draw::new(seed, "life", 0)));
        plan
    }
}

fn rates(draw: &mut Draw) -> Rates {
    // Calm, rough and wild worlds.
    let most = [0, 20, 60, 120][draw.range(0..4) as usize] + 1;
    let mut rate = || draw.range(0..most) as u32;
    Rates {
        lost_answer: rate(),
        lost_request: rate() / 2,
        late: rate(),
        reset: rate(),
        conflict: rate() / 2,
        throttled: rate() / 2,
        server: rate() / 2,
        refused: rate() / 4,
        own_412: rate(),
        read: rate() / 6,
    }
}

fn producer(draw: &mut Draw, number: u32, long: bool, busy: bool) -> ProducerPlan {
    let mut jumps: Vec<_> = (0..draw.range(0..3))
        .map(|_| Jump {
            at: draw.duration(Duration::ZERO, 60 * S),
            by: draw.duration(Duration::ZERO, 600 * S),
        })
        .collect();
    jumps.sort_by_key(|j| j.at);
    let shared = [1, 1, 2, 4, 16][draw.range(0..5) as usize];
    let objects = if long {
        draw.range(60..200)
    } else {
        draw.range(2..30)
    };
    let most = [5 * MS, 400 * MS, 400 * MS][draw.range(0..3) as usize];
    let (most, policy) = if busy {
        (20 * MS, PolicyKind::Dac)
    } else {
        (most, PolicyKind::draw(draw))
    };
    ProducerPlan {
        number,
        policy,
        tgbs: objects * (shared / 2 + 1),
        shared,
        every: draw.duration(MS, most),
        slow: if draw.chance(50) { 10.0 } else { 1.0 },
        skew: Skew {
            rate: 0.5 * 4_f64.powf(draw.unit()),
            jumps,
        },
        per_entry: [1, 8, 256][draw.range(0..3) as usize],
        restart: [MS, 20 * MS, 500 * MS][draw.range(0..3) as usize],
    }
}

fn crashes(draw: &mut Draw, producers: u32) -> Vec<Crash> {
    let count = draw.range(0..9);
    let crash = |_| Crash {
        producer: draw.range(0..u64::from(producers)) as u32,
        process: draw.range(0..4) as u32,
        // Most processes make a few dozen requests; many die while opening.
        request: 1 + (draw.exponential() * 15.0) as u64,
        moment: [Moment::Before, Moment::Sent, Moment::Answered][draw.range(0..3) as usize],
    };
    (0..count).map(crash).collect()
}

fn freezes(draw: &mut Draw, producers: u32, calm_at: Duration) -> Vec<Freeze> {
    let count = [0, 0, 1, 2, 4][draw.range(0..5) as usize];
    let freeze = |_| {
        let lasts = match draw.range(0..4) {
            0 => draw.duration(100 * MS, 2 * S),
            1 => draw.duration(3600 * S, 4 * 3600 * S),
            _ => draw.duration(S, 60 * S),
        };
        Freeze {
            producer: draw.range(0..u64::from(producers)) as u32,
            at: draw.duration(Duration::ZERO, calm_at / 4),
            lasts,
            taken_over: draw.chance(700).then(|| {
                let most = [50 * MS, lasts.min(20 * S)][draw.range(0..2) as usize];
                draw.duration(Duration::ZERO, most)
            }),
        }
    };
    (0..count).map(freeze).collect()
}

/// Draws the case that two machines run the same producers.
fn twins(draw: &mut Draw, producers: u32) -> Vec<(u32, Duration)> {
    if draw.chance(750) {
        return Vec::new();
    }
    let mut twin = |number| (number, draw.duration(Duration::ZERO, 200 * MS));
    (0..producers).map(&mut twin).collect()
}

fn reader(draw: &mut Draw, number: u32) -> ReaderPlan {
    ReaderPlan {
        number,
        starts: draw.duration(Duration::ZERO, 20 * S),
        every: draw.duration(10 * MS, 3 * S),
        writes: draw.chance(500),
    }
}
