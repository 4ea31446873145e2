//! Plans computed by hand, and how they change with the load.

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    plan: PlanArgs,
}

fn planned(line: &str, store: Profile) -> PlanReport {
    let words = std::iter::once("plan").chain(line.split(' '));
    let args = Line::try_parse_from(words).unwrap().plan;
    plan(&args, store, &Prices::shipped().unwrap()).unwrap()
}

#[track_caller]
fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-6 * b.abs().max(1e-6), "{a} is not {b}");
}

#[test]
fn one_producer_is_computed_by_hand() {
    let line = "--producers 1 --rate 2 --tgb-bytes 1000000 --nodes 10 --tokens-per-tgb 250000";
    let p = planned(line, Profile::S3Standard);
    let e = &p.estimate;
    near(e.steps_per_second, 2.0);
    near(e.entries_per_second, 2.0);
    near(
        e.requests_per_second.commits.put,
        e.requests_per_entry.put * 2.0,
    );
    near(e.requests_per_second.uploads.put, 2.0);
    // 10 nodes x (2 steps + 2 records x 2 reads)
    near(e.requests_per_second.consumers.get, 60.0);
    near(e.requests_per_second.consumers.put, 10.0 * 2.0 / 64.0);
    near(e.dollars_per_day.uploads, 2.0 * 86_400.0 * 5e-6);
    let total = e.dollars_per_day;
    near(
        e.total_dollars_per_day,
        total.commits + total.uploads + total.consumers,
    );
    let tokens_a_day = 500_000.0 * 86_400.0;
    near(
        e.dollars_per_trillion_tokens,
        e.total_dollars_per_day / tokens_a_day * 1e12,
    );
    assert_eq!(e.storage_dollars_per_day, None);
}

#[test]
fn faster_producers_put_more_into_an_entry() {
    let p = planned(
        "--producers 64 --rate 50 --tgb-bytes 64KiB --nodes 8",
        Profile::S3Standard,
    );
    let e = &p.estimate;
    near(e.entries_per_second, 64.0 * 5.0);
    near(e.tgbs_per_entry, 10.0);
    near(e.entries_per_second * e.tgbs_per_entry, e.steps_per_second);
    near(e.records_per_second, 10.0);
    // Ten batches of 64 KiB share an object.
    near(e.requests_per_second.uploads.put, 320.0);
}

#[test]
fn large_batches_take_several_objects_and_reads() {
    let p = planned(
        "--producers 2 --rate 1 --tgb-bytes 64MiB --nodes 2",
        Profile::S3Standard,
    );
    let e = &p.estimate;
    near(e.requests_per_second.uploads.put, 2.0 * 4.0);
    // Each node reads 32 MiB per step in two requests, and two records per second.
    near(
        e.requests_per_second.consumers.get,
        2.0 * (2.0 * 2.0 + 2.0 * 2.0),
    );
    assert_eq!(p.load.tokens_per_tgb, (64 << 20) / 4);
}

#[test]
fn the_nearest_limit_comes_first() {
    let many = planned(
        "--producers 64 --rate 2 --tgb-bytes 1MiB --nodes 512",
        Profile::S3Standard,
    );
    assert_eq!(many.limits[0].name, "reads of a prefix");
    assert!(many.limits[0].share > 1.0, "{:?}", many.limits);
    let few = planned(
        "--producers 1 --rate 1 --tgb-bytes 1GiB --nodes 1",
        Profile::S3Standard,
    );
    assert_eq!(few.limits[0].name, "uploads of a producer");
    let express = planned(
        "--producers 64 --rate 2 --tgb-bytes 1MiB --nodes 512",
        Profile::S3Express,
    );
    let reads = |p: &PlanReport| {
        p.limits
            .iter()
            .find(|l| l.name.starts_with("reads of a p"))
            .unwrap()
            .share
    };
    assert!(reads(&express) < reads(&many));
    for plan in [&many, &few, &express] {
        assert!(plan.limits.is_sorted_by(|a, b| a.share >= b.share));
    }
}

#[test]
fn storage_and_moved_bytes_are_charged_where_they_cost() {
    let line = "--producers 1 --rate 1 --tgb-bytes 1000000 --nodes 1 --keep-days 30.4375";
    let standard = planned(line, Profile::S3Standard).estimate;
    // 86.4 GB arrive per day and are kept for a month.
    near(standard.storage_dollars_per_day.unwrap(), 86.4 * 0.023);
    near(standard.transfer_dollars_per_day, 0.0);
    let express = planned(line, Profile::S3Express).estimate;
    near(express.transfer_dollars_per_day, 86.4 * 0.0038);
    near(express.storage_dollars_per_day.unwrap(), 86.4 * 0.11);
}

#[test]
fn a_plan_without_end_can_be_printed() {
    for line in [
        "--producers 1 --rate 0.0001 --tgb-bytes 1 --nodes 1",
        "--producers 100000 --rate 1000000 --tgb-bytes 1TiB --nodes 1000000 --keep-days 365",
    ] {
        let p = planned(line, Profile::S3Standard);
        let text = render::text(&p, batchweave_console::output::Style::default());
        let all = text + &render::explanation(&p, batchweave_console::output::Style::default());
        assert!(!all.contains("NaN") && !all.contains("inf"), "{all}");
        assert!(serde_json::to_string(&p).unwrap().contains("\"limits\""));
    }
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    for line in [
        "--producers 0 --rate 2 --tgb-bytes 1MiB --nodes 1",
        "--producers 1 --rate 0 --tgb-bytes 1MiB --nodes 1",
        "--producers 1 --rate nan --tgb-bytes 1MiB --nodes 1",
        "--producers 1 --rate 2 --tgb-bytes 0 --nodes 1",
        "--producers 1 --rate 2 --tgb-bytes 1QB --nodes 1",
        "--producers 1 --rate 2 --tgb-bytes 1MiB --nodes 1 --keep-days -3",
    ] {
        let words = std::iter::once("plan").chain(line.split(' '));
        assert!(Line::try_parse_from(words).is_err(), "{line}");
    }
}
