//! Thousands of nodes on one log: the busiest key stays within the limit, and every node gets every
//! record.

use batchweave_sim::follow::{FollowPlan, Followed, run};
use batchweave_sim::store::profile::Profile;

fn followed(nodes: u32, lead: u64, aware: bool) -> Followed {
    followed_at(1.0, nodes, lead, aware)
}

fn followed_at(rate: f64, nodes: u32, lead: u64, aware: bool) -> Followed {
    followed_for(6, rate, nodes, lead, aware)
}

fn followed_for(seconds: u64, rate: f64, nodes: u32, lead: u64, aware: bool) -> Followed {
    let plan = FollowPlan {
        nodes,
        lead,
        rate,
        profile: Profile::STANDARD,
        seconds,
        aware,
        seed: 5,
    };
    let followed = run(&plan).unwrap();
    println!("{}", serde_json::to_string(&followed).unwrap());
    followed
}

#[test]
fn few_nodes_that_wait_learn_of_a_step_at_once() {
    let f = followed(16, 0, true);
    assert_eq!(f.deliveries, f.steps * 16, "every node gets every record");
    assert!(f.delivery_p50_ms < 100.0, "{f:?}");
    assert_eq!(f.throttled, 0);
    assert_eq!(
        f.hash,
        followed(16, 0, true).hash,
        "the same seed, the same run"
    );
}

#[test]
fn a_crowd_of_followers_does_not_wear_out_a_key() {
    let starved = followed(400, 0, true);
    assert_eq!(starved.throttled, 0, "{starved:?}");
    assert!(starved.log_reads_per_second < 3500.0, "{starved:?}");
    assert_eq!(starved.deliveries, starved.steps * 400);
    let fed = followed(400, 64, true);
    assert!(
        fed.busiest_key_per_second < starved.busiest_key_per_second / 2.0,
        "who has enough looks seldom: {fed:?}"
    );
    let unaware = followed_for(3, 1.0, 400, 0, false);
    assert!(
        unaware.throttled > 0,
        "what the rule is there for: {unaware:?}"
    );
}

#[test]
fn a_crowd_reads_many_records_at_once() {
    let fed = followed_at(4.0, 600, 64, true);
    assert_eq!(
        (fed.throttled, fed.deliveries),
        (0, fed.steps * 600),
        "{fed:?}"
    );
    assert!(
        fed.log_reads_per_second < 0.5 * 4.0 * 600.0,
        "four records a second, of which a bundle has many: {fed:?}"
    );
    assert!(fed.delivery_p99_ms < 16_000.0, "within the lead: {fed:?}");
}
