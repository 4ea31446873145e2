//! The limit against stores with a known throughput.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const PART: u64 = 8 << 20;

/// A store with a throughput per read and in total, in bytes per second; further reads wait.
#[derive(Clone, Copy)]
struct Made {
    per_read: f64,
    together: f64,
    latency: Duration,
}

const S3: Made = Made {
    per_read: 85e6,
    together: f64::INFINITY,
    latency: Duration::from_millis(30),
};

/// Reads within the limit for this many seconds; returns bytes per second in the second half.
fn run(
    limit: &mut ConcurrencyLimit,
    from: &mut Duration,
    store: Made,
    seconds: u64,
    seed: u64,
) -> f64 {
    let mut random = StdRng::seed_from_u64(seed);
    let length = Duration::from_secs(seconds);
    let (end, half) = (*from + length, *from + length / 2);
    let mut bytes = 0;
    while *from < end {
        let count = limit.allowed();
        let rate = (count as f64 * store.per_read).min(store.together);
        let each = Duration::from_secs_f64(PART as f64 * count as f64 / rate);
        let full = count as f64 * store.per_read / rate;
        for read in 0..count {
            let now = *from + (store.latency + each).mul_f64((read + 1) as f64 / count as f64);
            let noise = random.random_range(0.9..1.1);
            limit.done(now, PART, store.latency.mul_f64(full * noise), true);
            bytes += if now > half { PART } else { 0 };
        }
        *from += store.latency + each;
    }
    bytes as f64 / (length / 2).as_secs_f64()
}

#[test]
fn a_store_that_gives_each_read_as_much_gets_all_that_are_allowed() {
    let (mut limit, mut now) = (ConcurrencyLimit::new(64), Duration::ZERO);
    assert_eq!(limit.allowed(), 8);
    run(&mut limit, &mut now, S3, 60, 1);
    assert_eq!(limit.allowed(), 64);
    let mut limit = ConcurrencyLimit::new(3);
    run(&mut limit, &mut now, S3, 60, 1);
    assert_eq!(limit.allowed(), 3, "never more than is allowed");
}

#[test]
fn a_narrow_path_gets_no_more_reads_than_fill_it() {
    for seed in 0..20 {
        println!("seed {seed}");
        let narrow = Made {
            together: 1e9,
            ..S3
        };
        let (mut limit, mut now) = (ConcurrencyLimit::new(128), Duration::ZERO);
        let rate = run(&mut limit, &mut now, narrow, 120, seed);
        assert!((8..=24).contains(&limit.allowed()), "{}", limit.allowed());
        assert!(rate > 0.85 * 7.2e8, "{rate}");
    }
}

#[test]
fn a_path_that_gets_wider_is_noticed() {
    let (mut limit, mut now) = (ConcurrencyLimit::new(64), Duration::ZERO);
    let narrow = Made {
        together: 4e8,
        ..S3
    };
    run(&mut limit, &mut now, narrow, 120, 3);
    let then = limit.allowed();
    run(&mut limit, &mut now, S3, 300, 3);
    assert!(then <= 12 && limit.allowed() > 24, "{then}, then {limit:?}");
}

#[test]
fn throttling_is_heard_at_once_and_together_counts_once() {
    let (mut limit, mut now) = (ConcurrencyLimit::new(64), Duration::ZERO);
    run(&mut limit, &mut now, S3, 60, 1);
    (0..20).for_each(|_| limit.throttled(now));
    assert_eq!(limit.allowed(), 42);
    let later = now + THROTTLED_ONCE;
    limit.throttled(later);
    assert_eq!(limit.allowed(), 28);
    for second in 2..60 {
        limit.throttled(now + THROTTLED_ONCE * second);
    }
    assert_eq!(limit.allowed(), LEAST);
    // The limit recovers when the store stops throttling.
    now += THROTTLED_ONCE * 60;
    run(&mut limit, &mut now, S3, 120, 2);
    assert!(limit.allowed() > 16, "{limit:?}");
}

#[test]
fn answers_that_queue_make_it_fewer_while_nothing_is_lost() {
    let (mut limit, mut now) = (ConcurrencyLimit::new(16), Duration::ZERO);
    run(&mut limit, &mut now, S3, 60, 1);
    assert_eq!(limit.allowed(), 16);
    let queueing = Made {
        together: 3e8,
        latency: Duration::from_millis(100),
        ..S3
    };
    run(&mut limit, &mut now, queueing, 60, 1);
    assert!((3..=10).contains(&limit.allowed()), "{limit:?}");
}

#[test]
fn a_limit_without_a_queue_does_not_grow() {
    let mut limit = ConcurrencyLimit::new(64);
    for read in 0..2000_u32 {
        let now = Duration::from_millis(50) * read;
        limit.done(now, PART, S3.latency, read % 3 == 0);
    }
    assert_eq!(limit.allowed(), 8);
}
