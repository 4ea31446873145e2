//! DAC step by step: its actions for given events.

use super::*;

const MS: Duration = Duration::from_millis(1);

struct Script {
    dac: Dac,
    now: Duration,
    queue: Queue,
}

impl Script {
    fn new(seed: u64) -> Self {
        let options = DacOptions {
            target: Duration::ZERO,
            seed,
        };
        let mut dac = Dac::new(options);
        dac.new = false;
        Self {
            dac,
            now: Duration::ZERO,
            queue: Queue::default(),
        }
    }

    fn ready(&mut self, items: usize) -> Action {
        if self.queue.ready == 0 {
            self.queue.oldest = self.now;
        }
        self.queue.ready += items;
        self.tell(Event::Ready)
    }

    fn tell(&mut self, event: Event) -> Action {
        self.dac.step(self.now, self.queue, event)
    }

    fn after(&mut self, time: Duration, event: Event) -> Action {
        self.now += time;
        self.tell(event)
    }

    fn won(&mut self, others: usize) -> Action {
        self.queue = Queue::default();
        self.after(30 * MS, won(others, false))
    }
}

fn won(others: usize, full: bool) -> Event {
    let others = vec![7; others];
    Event::Won { others, full }
}

fn record(writer: u64, leads: bool) -> SeenRecord {
    SeenRecord {
        writer,
        leads,
        put_ms: Some(30),
        producers: vec![writer],
    }
}

fn looks(action: &Action) -> bool {
    matches!(action, Action::Poll(_))
}

fn puts(action: Action) -> Option<(bool, bool)> {
    match action {
        Action::Put { leads, combine, .. } => Some((leads, combine)),
        _ => None,
    }
}

/// A producer that has lost often enough to stop racing; the answer to its last loss.
fn hot(script: &mut Script) {
    script.dac.view.versions = 1;
    script.ready(1);
    script.tell(Event::CaughtUp(vec![]));
    for writer in 0..u64::from(HOT) {
        script.after(30 * MS, Event::Lost(record(writer, false)));
        script.after(500 * MS, Event::Timer);
    }
}

#[test]
fn alone_a_commit_is_one_put() {
    let mut s = Script::new(1);
    s.dac.view.versions = 1;
    for round in 0..5 {
        let first = s.ready(1);
        let action = match first {
            Action::Poll(_) => {
                assert!(round < ALONE_AFTER, "a reader when alone");
                s.after(15 * MS, Event::CaughtUp(vec![]))
            }
            other => other,
        };
        assert_eq!(puts(action), Some((false, false)), "round {round}");
        assert_eq!(s.won(0), Action::Idle);
    }
    s.ready(1);
    s.after(30 * MS, Event::Lost(record(9, false)));
    let action = s.after(200 * MS, Event::Timer);
    assert!(looks(&action), "no longer alone: {action:?}");
}

#[test]
fn the_first_commit_checks_for_other_new_producers() {
    let mut s = Script::new(1);
    s.dac.new = true;
    assert!(looks(&s.ready(1)));
    let action = s.after(15 * MS, Event::CaughtUp(vec![]));
    assert_eq!(action, Action::Announce, "before anything is raced");
    s.queue.announced = 1;
    assert_eq!(s.after(30 * MS, Event::Announced(true)), Action::List);
    let action = s.after(40 * MS, Event::Listed(0));
    assert!(matches!(action, Action::CatchUp(_)), "nobody: {action:?}");
    let action = s.after(15 * MS, Event::CaughtUp(vec![]));
    assert_eq!(
        puts(action),
        Some((false, false)),
        "and no leader for nobody"
    );
}

#[test]
fn entries_are_announced_to_a_fresh_leader_without_a_race() {
    let mut s = Script::new(2);
    s.ready(1);
    let action = s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
    assert_eq!(action, Action::Announce);
    s.queue.announced = 1;
    let Action::Wait(look) = s.after(30 * MS, Event::Announced(true)) else {
        panic!("waits for the leader");
    };
    assert!(look > 100 * MS && look < 400 * MS, "{look:?}");
    s.queue.ready = 2;
    s.now += 10 * MS;
    assert_eq!(
        s.tell(Event::Ready),
        Action::Announce,
        "what is new is added"
    );
    s.queue.announced = 2;
    s.after(30 * MS, Event::Announced(true));
    let action = s.after(300 * MS, Event::Timer);
    assert!(looks(&action), "{action:?}");
    s.queue = Queue::default();
    let taken = s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
    assert_eq!(taken, Action::Idle);
}

#[test]
fn losers_announce_sweep_and_lead() {
    let mut s = Script::new(3);
    hot(&mut s);
    assert_eq!(s.after(15 * MS, Event::CaughtUp(vec![])), Action::Announce);
    s.queue.announced = 1;
    assert_eq!(s.after(30 * MS, Event::Announced(true)), Action::List);
    assert_eq!(s.after(40 * MS, Event::Listed(3)), Action::Gather);
    let action = s.after(15 * MS, Event::Gathered(3));
    assert!(matches!(action, Action::CatchUp(_)), "{action:?}");
    let action = s.after(15 * MS, Event::CaughtUp(vec![]));
    assert_eq!(puts(action), Some((true, true)));
    assert!(matches!(s.won(3), Action::Wait(_)));
    assert!(s.dac.role.leads());
}

fn leading(script: &mut Script) {
    script.dac.role = Role::Leading(Leading::new(Duration::ZERO, Duration::ZERO));
}

#[test]
fn a_leader_steps_down_when_it_finds_few_intents() {
    let mut s = Script::new(4);
    leading(&mut s);
    let mut rounds = 0;
    while s.dac.role.leads() {
        s.queue = Queue::default();
        s.ready(1);
        s.now += Duration::from_secs(1);
        assert_eq!(s.tell(Event::Timer), Action::List, "round {rounds}");
        puts(s.tell(Event::Listed(0))).unwrap();
        s.won(0);
        rounds += 1;
        assert!(rounds < 50);
    }
    assert!(rounds >= 10, "not at the first quiet moment: {rounds}");
}

/// A round of a leader that finds 100 intents and takes 25; the time until the next one.
fn after_a_round(full: bool) -> Duration {
    let mut s = Script::new(4);
    s.dac.options.target = 2000 * MS;
    leading(&mut s);
    assert_eq!(s.ready(1), Action::List);
    assert_eq!(s.after(40 * MS, Event::Listed(100)), Action::Gather);
    puts(s.after(15 * MS, Event::Gathered(100))).unwrap();
    s.queue = Queue::default();
    match s.after(30 * MS, won(25, full)) {
        Action::Wait(time) => time + 85 * MS,
        other => panic!("{other:?}"),
    }
}

#[test]
fn entries_without_room_in_a_record_do_not_wait_for_a_whole_interval() {
    assert_eq!(after_a_round(true), 500 * MS);
    // Entries left out for another reason do not shorten the interval.
    assert_eq!(after_a_round(false), 2000 * MS);
}

#[test]
fn a_leader_stops_when_another_leads_but_not_when_it_only_lost_a_race() {
    let mut s = Script::new(4);
    leading(&mut s);
    s.ready(1);
    s.tell(Event::Timer);
    s.tell(Event::Listed(0));
    assert_eq!(
        s.tell(Event::Lost(record(8, false))),
        Action::List,
        "repeats the round"
    );
    assert!(s.dac.role.leads(), "nobody took over");
    s.tell(Event::Listed(0));
    s.tell(Event::Lost(record(8, true)));
    assert!(!s.dac.role.leads(), "somebody took over");
}

#[test]
fn a_dead_leader_is_replaced_in_bounded_time() {
    for seed in 0..100 {
        let mut s = Script::new(seed);
        s.ready(1);
        s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
        s.queue.announced = 1;
        let mut action = s.after(30 * MS, Event::Announced(true));
        let mut requests = 0;
        while !matches!(action, Action::List) {
            action = match action {
                Action::Wait(time) => s.after(time, Event::Timer),
                Action::Poll(_) => s.after(15 * MS, Event::CaughtUp(vec![])),
                other => panic!("seed {seed}: {other:?}"),
            };
            requests += 1;
            assert!(
                requests < 40 && s.now < Duration::from_secs(3),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn of_many_candidates_few_sweep() {
    let sweeps = (0..400)
        .filter(|&seed| {
            let mut s = Script::new(seed);
            hot(&mut s);
            s.after(15 * MS, Event::CaughtUp(vec![]));
            s.queue.announced = 1;
            s.after(30 * MS, Event::Announced(true));
            s.after(40 * MS, Event::Listed(400)) == Action::Gather
        })
        .count();
    assert!((1..=12).contains(&sweeps), "{sweeps} of 400");
}

#[test]
fn a_producer_that_is_passed_over_commits_itself() {
    let mut s = Script::new(6);
    s.ready(1);
    s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
    s.queue.announced = 1;
    s.after(30 * MS, Event::Announced(true));
    for look in 0..=PASSED_MAX {
        let action = s.after(400 * MS, Event::Timer);
        assert!(looks(&action), "look {look}: {action:?}");
        let records = vec![record(5, true); 9];
        let action = s.after(15 * MS, Event::CaughtUp(records));
        let sweeps = action == Action::List;
        assert_eq!(sweeps, look == PASSED_MAX, "look {look}: {action:?}");
    }
    let action = s.after(40 * MS, Event::Listed(0));
    assert!(matches!(action, Action::CatchUp(_)));
    let action = s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
    assert!(puts(action).is_some());
}

#[test]
fn a_slow_producer_does_not_lead() {
    let mut s = Script::new(7);
    for _ in 0..40 {
        s.dac.view.link.put_took(Some(300 * MS));
    }
    hot(&mut s);
    s.after(15 * MS, Event::CaughtUp(vec![]));
    s.queue.announced = 1;
    s.after(300 * MS, Event::Announced(true));
    s.after(400 * MS, Event::Listed(3));
    s.after(150 * MS, Event::Gathered(3));
    let action = s.after(150 * MS, Event::CaughtUp(vec![]));
    assert_eq!(puts(action), Some((false, true)));
}

#[test]
fn a_target_collects_before_a_commit() {
    let mut s = Script::new(8);
    s.dac.options.target = Duration::from_secs(1);
    let Action::Wait(time) = s.ready(1) else {
        panic!("collects first");
    };
    assert!(
        time > 500 * MS && time <= Duration::from_secs(1),
        "{time:?}"
    );
    assert!(looks(&s.after(time, Event::Timer)));
}

#[test]
fn a_producer_that_can_not_announce_races_beside_a_leader() {
    let mut s = Script::new(9);
    s.ready(1);
    let action = s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
    assert_eq!(action, Action::Announce);
    let action = s.after(30 * MS, Event::Announced(false));
    assert!(matches!(action, Action::CatchUp(_)), "{action:?}");
    let action = s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
    assert_eq!(puts(action), Some((false, false)));
}

/// The driver's first event reports the opening; this policy has made no request yet.
#[test]
fn an_opening_that_took_hours_is_no_measure_of_the_store() {
    let events = [
        Event::CaughtUp(vec![record(5, true)]),
        won(0, false),
        Event::Announced(true),
        Event::Listed(0),
    ];
    for event in events {
        let mut s = Script::new(6);
        s.now = Duration::from_hours(3);
        (s.queue.ready, s.queue.oldest) = (1, s.now);
        s.tell(event);
        let patience = s.dac.view.link.patience();
        assert!(patience < Duration::from_secs(1), "{patience:?}");
    }
}

#[test]
fn a_freeze_within_the_first_request_costs_a_minute_or_two() {
    let mut s = Script::new(7);
    s.ready(1);
    s.after(Duration::from_hours(3), Event::CaughtUp(vec![]));
    s.after(Duration::from_hours(3), Event::Announced(true));
    s.after(Duration::from_hours(3), Event::Listed(0));
    let patience = s.dac.view.link.patience();
    assert!(patience < Duration::from_mins(2), "{patience:?}");
}

mod behind;
mod bursts;
mod silence;
