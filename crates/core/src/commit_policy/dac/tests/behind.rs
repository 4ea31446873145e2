//! Slow readers: items that become ready meanwhile do not wait until all records are read.

use super::*;

/// A follower whose put takes this many milliseconds; one item is announced and its poll is due.
fn looking(put: u32) -> Script {
    let mut s = Script::new(2);
    s.ready(1);
    let action = s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
    assert_eq!(action, Action::Announce);
    for _ in 0..40 {
        s.dac.view.link.put_took(Some(put * MS));
    }
    s.queue.announced = 1;
    let mut action = s.after(put * MS, Event::Announced(true));
    if let Action::Wait(time) = action {
        action = s.after(time, Event::Timer);
    }
    assert!(looks(&action), "{action:?}");
    s
}

#[test]
fn ready_items_are_announced_between_two_windows() {
    let mut s = looking(300);
    s.queue.ready = 2;
    let action = s.after(300 * MS, Event::Behind(vec![record(5, true)]));
    assert_eq!(action, Action::Announce);
    s.queue.announced = 2;
    let action = s.after(300 * MS, Event::Announced(true));
    assert!(looks(&action), "and then it reads on: {action:?}");
    let action = s.after(300 * MS, Event::Behind(vec![record(5, true)]));
    assert!(looks(&action), "nothing new: {action:?}");
}

#[test]
fn a_quick_producer_gives_its_leader_time_first() {
    let mut s = looking(30);
    s.queue.ready = 2;
    let action = s.after(15 * MS, Event::Behind(vec![record(5, true)]));
    assert_eq!(action, Action::Announce);
    s.queue.announced = 2;
    let action = s.after(30 * MS, Event::Announced(true));
    assert!(matches!(action, Action::Wait(_)), "{action:?}");
}

#[test]
fn a_slow_producer_does_not_postpone_its_poll() {
    for (put, put_off) in [(300, false), (30, true)] {
        let mut s = looking(put);
        s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
        let planned = s.dac.polls.next;
        s.queue.ready = 2;
        s.after(planned.saturating_sub(s.now) / 2, Event::Ready);
        s.queue.announced = 2;
        s.after(MS, Event::Announced(true));
        assert_eq!(s.dac.polls.next > planned, put_off, "{put}");
    }
}

#[test]
fn windows_of_one_poll_do_not_count_as_polls_that_passed_an_item_over() {
    let mut s = looking(300);
    let before = s.dac.role.passed();
    for _ in 0..=PASSED_MAX {
        let action = s.after(300 * MS, Event::Behind(vec![record(5, true)]));
        assert!(looks(&action), "{action:?}");
    }
    assert_eq!(s.dac.role.passed(), before);
}
