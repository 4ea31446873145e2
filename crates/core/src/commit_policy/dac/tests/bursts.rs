//! Silence between bursts: leaders that stay, followers that announce to them, and producers that keep
//! reading.

use super::super::constants::{BURST, QUIET_PACE, STAY_FOR};
use super::*;

/// Returns the rounds until the leader steps down, and the time.
fn silence(s: &mut Script) -> (u32, Duration) {
    let mut rounds = 0;
    s.queue = Queue::default();
    let (mut action, began) = (s.tell(Event::Timer), s.now);
    loop {
        action = match action {
            Action::Wait(time) => s.after(time, Event::Timer),
            Action::List => {
                rounds += 1;
                s.after(40 * MS, Event::Listed(0))
            }
            Action::Put { leads: false, .. } => return (rounds, s.now.saturating_sub(began)),
            other => panic!("round {rounds}: {other:?}"),
        };
        assert!(rounds < 1000 && s.now < Duration::from_mins(1));
    }
}

/// A leader that has just committed a burst.
fn after_a_burst() -> Script {
    let mut s = Script::new(4);
    leading(&mut s);
    s.tell(Event::Timer);
    s.after(40 * MS, Event::Listed(BURST));
    s.after(15 * MS, Event::Gathered(BURST));
    s.won(BURST);
    s
}

#[test]
fn a_leader_of_bursts_stays_through_silence_with_few_rounds() {
    let mut s = Script::new(4);
    leading(&mut s);
    let (rounds, time) = silence(&mut s);
    assert!(time < STAY_FOR / 3, "of no burst: {rounds} in {time:?}");

    let mut s = after_a_burst();
    let (rounds, time) = silence(&mut s);
    assert!(
        time >= STAY_FOR && time < STAY_FOR + QUIET_PACE * 2,
        "{time:?}"
    );
    assert!((40..110).contains(&rounds), "{rounds}");
}

#[test]
fn a_quiet_leader_commits_its_own_items_at_once() {
    let mut s = after_a_burst();
    for _ in 0..20 {
        if let Action::Wait(time) = s.tell(Event::Timer) {
            s.after(time, Event::Timer);
        }
        s.after(40 * MS, Event::Listed(0));
    }
    assert_eq!(s.ready(1), Action::List, "without a wait");
}

#[test]
fn a_follower_of_bursts_announces_to_a_silent_leader_and_waits_for_its_round() {
    for burst in [true, false] {
        let mut s = Script::new(2);
        s.ready(1);
        let mut led = record(5, true);
        if burst {
            led.producers = (0..=BURST as u64).collect();
        }
        s.after(15 * MS, Event::CaughtUp(vec![led]));
        s.queue = Queue::default();
        s.now += STAY_FOR.saturating_sub(Duration::from_secs(1));
        let action = s.ready(1);
        assert_eq!(action == Action::Announce, burst, "{action:?}");
        if !burst {
            continue;
        }
        s.queue.announced = 1;
        let mut action = s.after(30 * MS, Event::Announced(true));
        let told = s.now;
        // The leader has failed: no record arrives.
        while action != Action::List {
            action = match action {
                Action::Wait(time) => s.after(time, Event::Timer),
                Action::Poll(_) => s.after(15 * MS, Event::CaughtUp(vec![])),
                other => panic!("{other:?}"),
            };
        }
        let waited = s.now.saturating_sub(told);
        assert!(waited >= QUIET_PACE, "{waited:?}");
        assert!(waited < Duration::from_secs(2), "{waited:?}");
    }
}

#[test]
fn an_idle_producer_reads_only_while_records_arrive() {
    let mut s = Script::new(2);
    s.now = Duration::from_secs(1);
    s.ready(1);
    s.after(15 * MS, Event::CaughtUp(vec![record(5, false)]));
    let mut action = s.won(0);
    let (mut looks, mut read, began) = (0, 0, s.now);
    while let Action::Wait(time) = action {
        assert!(time <= IDLE_FOR);
        action = s.after(time, Event::Timer);
        if action == Action::Idle {
            break;
        }
        assert!(matches!(action, Action::Poll(_)), "{action:?}");
        // One record per second.
        let new = s.now.saturating_sub(began).as_secs() - read;
        let records = vec![record(5, false); new as usize];
        (looks, read) = (looks + 1, read + new);
        action = s.after(15 * MS, Event::CaughtUp(records));
    }
    let time = s.now.saturating_sub(began);
    assert!(time <= IDLE_FOR + Duration::from_secs(30), "{time:?}");
    assert!((6..40).contains(&looks), "{looks} looks in {time:?}");
}

#[test]
fn an_idle_producer_does_not_read_a_silent_log() {
    let mut s = Script::new(2);
    s.ready(1);
    s.after(15 * MS, Event::CaughtUp(vec![]));
    assert_eq!(s.won(0), Action::Idle);
}

#[test]
fn a_slow_reader_does_not_read_while_idle() {
    for (put, reads_on) in [(30, true), (300, false)] {
        let mut s = Script::new(2);
        s.now = Duration::from_secs(1);
        for _ in 0..40 {
            s.dac.view.link.put_took(Some(put * MS));
        }
        s.ready(1);
        s.after(15 * MS, Event::CaughtUp(vec![record(5, false); 4]));
        let action = s.won(0);
        assert_eq!(action != Action::Idle, reads_on, "{action:?}");
    }
}
