//! A producer that has not polled for a while.

use super::*;

#[test]
fn a_producer_without_a_poll_believes_in_a_leader_for_a_while() {
    for (idle, told) in [(50, true), (1900, true), (2100, false), (20_000, false)] {
        let mut s = Script::new(2);
        s.ready(1);
        s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
        s.queue = Queue::default();
        s.after(30 * MS, Event::Announced(true));
        s.now += idle * MS;
        let action = s.ready(1);
        assert_eq!(action == Action::Announce, told, "{idle} ms: {action:?}");
    }
    // But not when its own polls show otherwise.
    let mut s = Script::new(2);
    s.ready(1);
    let action = s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
    assert_eq!(action, Action::Announce);
    s.queue.announced = 1;
    let mut action = s.after(30 * MS, Event::Announced(true));
    while s.now < Duration::from_secs(1) {
        action = match action {
            Action::Wait(time) => s.after(time, Event::Timer),
            Action::Poll(_) => s.after(15 * MS, Event::CaughtUp(vec![])),
            other => {
                assert_eq!(other, Action::List, "it takes the leader for dead");
                return;
            }
        };
    }
    panic!("a silent leader is believed for a second: {action:?}");
}

#[test]
fn a_producer_that_was_away_expects_the_usual_number_of_records() {
    let mut s = Script::new(2);
    let mut expected = 0;
    for _ in 0..8 {
        s.now += Duration::from_secs(20);
        s.queue = Queue::default();
        let Action::Poll(records) = s.ready(1) else {
            panic!("nobody leads and others write");
        };
        expected = records;
        let others = (0..20).map(|n| record(n, false)).collect();
        s.after(15 * MS, Event::CaughtUp(others));
        s.won(0);
    }
    assert!((19..=24).contains(&expected), "{expected} of 20");
    // Even very many readers together request no more than the store allows.
    let crowd: Vec<_> = (0..2000).map(|n| record(n, false)).collect();
    s.ready(1);
    s.tell(Event::CaughtUp(crowd));
    s.now += Duration::from_secs(20);
    assert_eq!(s.dac.view.expected(s.now, 1000), 4);
}

#[test]
fn a_poll_that_expected_far_too_few_records_expects_more() {
    let mut s = Script::new(2);
    s.ready(1);
    s.after(15 * MS, Event::CaughtUp(vec![record(5, true)]));
    s.queue.announced = 1;
    s.after(30 * MS, Event::Announced(true));
    let mut asked = vec![];
    for _ in 0..4 {
        let Action::Poll(records) = s.after(Duration::from_secs(1), Event::Timer) else {
            panic!("looks");
        };
        asked.push(records);
        s.after(
            MS,
            Event::CaughtUp(vec![record(5, true); 3 * records as usize]),
        );
    }
    assert!(asked.is_sorted() && asked[1] >= 2 * asked[0], "{asked:?}");
}

#[test]
fn only_a_new_producer_may_be_one_of_hundreds() {
    let mut s = Script::new(1);
    s.dac.new = true;
    s.tell(Event::Timer);
    s.now = NEW_FOR * 2;
    assert!(looks(&s.ready(1)));
    let action = s.after(15 * MS, Event::CaughtUp(vec![]));
    assert_eq!(puts(action), Some((false, false)), "{action:?}");
}
