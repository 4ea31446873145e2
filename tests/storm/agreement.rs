//! The simulator compared with reality: the same load in virtual time, and in real time over `dev-s3`
//! with the same latencies. A benchmark: run it alone on an idle machine.
//!
//!     cargo test --release -p batchweave-tests --test storm -- \
//!         --ignored --nocapture the_simulator_and_dev_s3

use std::time::Duration;

use batchweave_sim::load::scenario::Scenario;
use batchweave_sim::load::{LoadPlan, run as simulate};
use batchweave_sim::policy::PolicyKind;
use batchweave_sim::store::manifest::ManifestPlan;
use batchweave_sim::store::profile::Profile;
use batchweave_tests::seed;
use tokio::runtime::Runtime;

use crate::alone;
use crate::real::{Load, run};

/// Entries per second of each producer.
const RATE: f64 = 2.0;
/// Virtual seconds; a long run makes the simulator's figures independent of chance.
const SIMULATED_S: u64 = 300;

#[test]
#[ignore = "a benchmark of minutes; alone, with --nocapture"]
fn the_simulator_and_dev_s3() {
    let _alone = alone();
    let seed = seed();
    let runtime = Runtime::new().unwrap();
    for (producers, seconds) in [(1, 200), (4, 90), (16, 45), (64, 30)] {
        let real = runtime.block_on(run(Load {
            producers,
            rate: RATE,
            counted: Duration::from_secs(seconds),
            seed,
        }));
        let sim = simulate(&LoadPlan {
            asked: producers,
            rate: RATE,
            profile: Profile::STANDARD,
            policy: PolicyKind::Dac,
            manifest: ManifestPlan::default(),
            short_keys: false,
            scenario: Scenario::Steady,
            seconds: SIMULATED_S,
            seed,
        })
        .unwrap();
        let side = |p50: f64, p99: f64, attempts: f64, records: f64, requests: f64| {
            serde_json::json!({
                "p50_ms": p50, "p99_ms": p99, "attempts_per_commit": attempts,
                "records_per_second": records, "requests_per_entry": requests,
            })
        };
        let line = serde_json::json!({
            "producers": producers, "seed": seed, "seconds": seconds, "entries": real.entries,
            "real": side(real.p50_ms, real.p99_ms, real.attempts_per_commit,
                real.records_per_second, real.requests_per_entry),
            "sim": side(sim.p50_ms, sim.p99_ms, sim.attempts_per_commit,
                sim.records_per_second, sim.http_requests_per_entry),
            "p50_ratio": real.p50_ms / sim.p50_ms,
            "attempts_ratio": real.attempts_per_commit / sim.attempts_per_commit,
        });
        println!("{line}");
    }
}
