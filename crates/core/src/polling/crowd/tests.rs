//! Followers of records that appear at some rate, with and without bundles.

use super::*;

/// When a follower knows the rate.
const SETTLED: f64 = 45.0;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Returns a number from 0 to 1 for each `n`; many of them are spread evenly.
fn draw(n: u64) -> f64 {
    let mixed = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as f64 / (1 << 24) as f64
}

/// The times at which records appear: `rate` a second, with gaps of half to one and a half times the mean, from 10 s on.
fn appear(rate: f64, until: f64) -> Vec<f64> {
    let mut at = 10.0;
    let gaps = (0..).map(|n| (0.5 + draw(n)) / rate);
    let times = gaps.map(|gap| {
        at += gap;
        at
    });
    times.take_while(|at| *at < until).collect()
}

struct Run {
    /// Reads once the follower has settled.
    reads: usize,
    /// The time from each later record's appearance until it was read.
    delays: Vec<f64>,
}

/// One follower of records that appear at these times; bundles exist if `bundles` says so.
fn follow(
    records: &[f64],
    lead: u64,
    followers: u32,
    until: f64,
    seed: u64,
    bundles: impl Fn(Version) -> bool,
) -> Run {
    let (mut crowd, mut now, mut next, mut polls) = (CrowdReads::default(), 0.0, 0, 0);
    let mut run = Run {
        reads: 0,
        delays: Vec::new(),
    };
    while now < until {
        let read = crowd.next(next, followers, seconds(now));
        run.reads += usize::from(now > SETTLED);
        polls += 1;
        let there = |version: Version| records.get(version as usize).is_some_and(|at| *at <= now);
        let before = next;
        match read {
            NextRead::Record if there(next) => next += 1,
            NextRead::Head => {
                while there(next) {
                    next += 1;
                    run.reads += usize::from(now > SETTLED);
                }
            }
            NextRead::Bundle(last) if there(last) && bundles(last) => next = last + 1,
            _ => {}
        }
        let fresh = records[before as usize..next as usize].iter();
        run.delays
            .extend(fresh.filter(|at| **at > SETTLED).map(|at| now - at));
        let gave = if next > before {
            Gave::Records
        } else {
            Gave::Nothing
        };
        crowd.note(read, gave, next, next, seconds(now));
        let pause = crowd.pause(Some(lead), followers).as_secs_f64();
        now += pause * (0.9 + 0.2 * draw(seed * 100_000 + polls));
    }
    run.delays.sort_by(f64::total_cmp);
    run
}

/// Several followers of the same records: reads per second of 10,000 of them, and the median and 99th percentile of
/// the delays.
fn crowd(records: &[f64], lead: u64) -> (f64, f64, f64) {
    let runs: Vec<_> = (0..20)
        .map(|n| follow(records, lead, 10_000, 600.0, n, |_| true))
        .collect();
    let reads: usize = runs.iter().map(|run| run.reads).sum();
    let mut delays: Vec<_> = runs.into_iter().flat_map(|run| run.delays).collect();
    delays.sort_by(f64::total_cmp);
    let at = |q: usize| delays[delays.len() * q / 100];
    (
        reads as f64 / 20.0 / (600.0 - SETTLED) * 1e4,
        at(50),
        at(99),
    )
}

#[test]
fn ten_thousand_starved_followers_have_each_record_within_seconds() {
    for (rate, within) in [(0.3, 8.0), (1.0, 8.0), (2.0, 4.5), (5.0, 5.0)] {
        let (reads, p50, p99) = crowd(&appear(rate, 600.0), 0);
        println!("{rate} records/s: {reads} reads/s, p50 {p50}, p99 {p99}");
        assert!(reads < 5_000.0, "{rate}: {reads} reads per second");
        assert!(p99 < within, "{rate}: p99 {p99}");
    }
}

#[test]
fn followers_with_steps_ahead_read_by_their_lead() {
    let (reads, p50, p99) = crowd(&appear(2.0, 600.0), 64);
    println!("{reads} reads/s, p50 {p50}, p99 {p99}");
    assert!(reads < 1_700.0, "{reads} reads per second");
    // A third of the lead, which is 32 s, is left.
    assert!(p99 < 21.0, "p99 {p99}");
}

#[test]
fn without_bundles_each_record_is_read_and_a_pause_costs_one_read_at_a_time() {
    let records = appear(2.0, 300.0);
    let run = follow(&records, 0, 10_000, 340.0, 0, |_| false);
    assert!(run.delays.iter().all(|delay| *delay < 51.0), "it keeps up");
    assert_eq!(
        run.delays.len(),
        records.iter().filter(|at| **at > SETTLED).count()
    );
    let mut crowd = CrowdReads::default();
    for n in 0..10 {
        let now = seconds(f64::from(n));
        let read = crowd.next(5, 10_000, now);
        assert_eq!(read, NextRead::Record, "nothing is known");
        crowd.note(read, Gave::Nothing, 5, 5, now);
    }
}

#[test]
fn followers_that_fell_behind_together_read_all_records_at_different_times() {
    // All read a first single record within the same two seconds, as they do after a pause of the writers.
    let waits: Vec<f64> = (0..1000)
        .map(|n| {
            let mut crowd = CrowdReads::default();
            let begins = 100.0 + 2.0 * draw(n);
            crowd.note(NextRead::Head, Gave::Nothing, 5, 5, seconds(begins));
            crowd.note(NextRead::Record, Gave::Records, 6, 6, seconds(begins));
            let is_head = |wait: &u32| {
                crowd.next(6, 10_000, seconds(begins + f64::from(*wait))) == NextRead::Head
            };
            begins + f64::from((0..100).find(is_head).unwrap())
        })
        .collect();
    for second in 120..146 {
        let at = f64::from(second);
        let number = waits
            .iter()
            .filter(|wait| (at..at + 1.0).contains(*wait))
            .count();
        assert!(
            (20..60).contains(&number),
            "{number} of 1,000 in second {second}"
        );
    }
}

#[test]
fn after_refused_bundles_ever_more_records_are_read_at_the_rate_of_the_crowd() {
    let (mut crowd, now) = (CrowdReads::default(), seconds(100.0));
    crowd.note(NextRead::Head, Gave::Nothing, 0, 0, seconds(0.0));
    crowd.note(NextRead::Head, Gave::Records, 100, 100, seconds(50.0));
    let mut next = 100;
    for records in [1, 2, 4, 8, 8] {
        assert!(matches!(crowd.next(next, 10_000, now), NextRead::Bundle(_)));
        crowd.note_refused();
        for _ in 0..records {
            assert_eq!(crowd.next(next, 10_000, now), NextRead::Record);
            let pause = crowd.pause(Some(64), 10_000);
            assert!(pause < seconds(2.5), "its lead does not help it");
            // The head may be reached meanwhile.
            crowd.note(NextRead::Record, Gave::Nothing, next, next, now);
            next += 1;
            crowd.note(NextRead::Record, Gave::Records, next, next, now);
        }
        // The rest is expected still.
        crowd.beyond = 9.0;
    }
    let read = crowd.next(next, 10_000, now);
    crowd.note(read, Gave::Records, next + 8, next + 8, now);
    crowd.note_refused();
    assert_eq!(crowd.records, 1, "a bundle was good");
}

#[test]
fn all_followers_together_compare_a_hundred_records_per_second() {
    for followers in [256, 10_000] {
        let each = compare_pause(followers, 0.5).as_secs_f64();
        assert!((f64::from(followers) / each - 100.0).abs() < 1e-6);
    }
    assert_eq!(compare_pause(10_000, 2.0), seconds(150.0));
}

#[test]
fn a_follower_that_slept_for_hours_goes_on() {
    let (mut crowd, mut next) = (CrowdReads::default(), 0);
    for at in (0..99).chain([100_000, 100_003]) {
        let now = seconds(f64::from(at));
        let gave = if at % 3 == 0 {
            Gave::Nothing
        } else {
            Gave::Records
        };
        next += 4 * u64::from(gave == Gave::Records);
        crowd.note(crowd.next(next, 10_000, now), gave, next, next, now);
    }
    assert!(crowd.gain <= GAIN.1);
}

#[test]
fn after_a_pause_of_the_writers_bundles_are_read_again() {
    let mut records = appear(2.0, 60.0);
    let later: Vec<_> = records.iter().map(|at| at + 200.0).collect();
    records.extend(later);
    let run = follow(&records, 0, 10_000, 300.0, 0, |_| true);
    assert_eq!(
        run.delays.len(),
        records.iter().filter(|at| **at > SETTLED).count()
    );
    assert!(*run.delays.last().unwrap() < 30.0);
}
