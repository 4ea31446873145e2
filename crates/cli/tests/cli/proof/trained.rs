//! `verify --job --trained`: what ranks reported is proved below the last mark; steps without a report are named.

use batchweave_core::proof::ReportedStates;

use super::*;

/// The state of a step: trained, left out for a reason, or not reported.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Trained,
    LeftOut(&'static str),
    Silent,
}

impl Run {
    /// Adds states to all ledgers: of each attempt, coordinate and step.
    fn report(&self, state: impl Fn(u64, u32, Step) -> State) {
        for attempt in self.dp.keys() {
            let folder = self.path(*attempt, 0, "0");
            for file in fs::read_dir(folder.parent().unwrap()).unwrap() {
                let path = file.unwrap().path();
                let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
                value.as_object_mut().unwrap().remove("digest");
                let mut ledger: Ledger = serde_json::from_value(value).unwrap();
                let entries = ledger.entries.iter();
                let all =
                    entries.map(|entry| states_of(entry, |rank, step| state(*attempt, rank, step)));
                ledger.states = all.filter(|states| states.ranges() > 0).collect();
                ledger.format = Ledger::format_with(&ledger.states);
                fs::write(path, ledger.to_json()).unwrap();
            }
        }
    }
}

fn states_of(entry: &LedgerEntry, state: impl Fn(u32, Step) -> State) -> ReportedStates {
    let mut states = ReportedStates {
        dp_rank: entry.dp_rank,
        ..ReportedStates::default()
    };
    for (step, _) in entry.steps() {
        match state(entry.dp_rank, step) {
            State::Trained => states.trained.push((step, step + 1)),
            State::LeftOut(why) => states.left_out.push((step, step + 1, why.to_owned())),
            State::Silent => {}
        }
    }
    states
}

const TRAINED: [&str; 4] = ["verify", "--job", JOB, "--trained"];

/// A run with 5 restarts of 4, 2 and 4 ranks: attempt 2 has no part in it.
#[tokio::test]
async fn a_run_whose_ranks_reported_all_steps_is_proved_as_trained() {
    let run = Run::honest().await;
    let job = format!("{JOB}@{}", run.opened);
    run.report(|_, _, _| State::Trained);
    run.world.run(&TRAINED).prints(&[
        "trained: steps 0..29",
        "28 in all",
        "steps 30..39 are reported",
    ]);
    run.world.mark(&job, 5, 36, None).await;
    let said = [
        "proved: steps 0..39, 38 in all",
        "trained: steps 0..35, 34 in all, each reported as trained by every data coordinate",
        "steps 36..39 are reported, not marked",
    ];
    run.world.run(&TRAINED).prints(&said);
    fs::remove_dir_all(run.world.path("data")).unwrap();
    run.world.run(&TRAINED).prints(&said);
    // A rank that has not reported yet, above the mark.
    run.report(|attempt, rank, step| match (attempt, rank, step) {
        (5, 2, 37..) => State::Silent,
        _ => State::Trained,
    });
    run.world
        .run(&TRAINED)
        .prints(&[said[1], "step 36", "are reported, not marked"]);
    let to = run.world.json(&[&TRAINED[..], &["--to", "20"]].concat());
    assert_eq!(to["training"]["below"], 20);
}

#[tokio::test]
async fn three_steps_without_a_report_are_named_by_coordinate() {
    let run = Run::honest().await;
    run.report(|_, _, step| match step {
        5 | 12 | 13 => State::Silent,
        _ => State::Trained,
    });
    let ran = run.world.run(&TRAINED);
    ran.fails(
        66,
        &[
            "not proved",
            "coordinate 0 of attempt 0 has no report of steps 5",
        ],
    );
    for line in [
        "without a report: attempt 0, coordinate 3, steps 5\n",
        "without a report: attempt 1, coordinate 0, steps 12..13\n",
        "without a report: attempt 1, coordinate 1, steps 12..13\n",
    ] {
        assert!(ran.out.contains(line), "no {line:?} in {}", ran.out);
    }
    assert_eq!(
        ran.out.matches("without a report").count(),
        6,
        "{}",
        ran.out
    );
    let report = run.world.run(&[&TRAINED[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!(report["verdict"], "proved", "they were received");
    let first = serde_json::json!({"attempt": 0, "dp_rank": 0, "from": 5, "to": 6});
    assert_eq!(report["training"]["missing"][0], first);
    run.world
        .run(&["verify", "--job", JOB])
        .prints(&["proved: steps 0..39"]);
}

#[tokio::test]
async fn steps_left_out_on_purpose_are_listed_and_proved() {
    let run = Run::honest().await;
    run.report(|_, _, step| match step {
        5 | 12 | 13 => State::LeftOut("nan"),
        _ => State::Trained,
    });
    run.world.run(&TRAINED).prints(&[
        "left out on purpose: attempt 0, coordinate 2, steps 5 (nan)",
        "left out on purpose: attempt 1, coordinate 1, steps 12 (nan), 13 (nan)",
        "trained: steps 0..29, 25 in all",
    ]);
}

#[tokio::test]
async fn without_reports_a_run_is_proved_as_received_only() {
    let run = Run::honest().await;
    run.world.run(&TRAINED).fails(
        66,
        &["coordinate 0 of attempt 0 has no report of steps 0..9"],
    );
    run.world
        .run(&["verify", "--job", JOB])
        .prints(&["proved: steps 0..39"]);
    run.report(|_, _, _| State::Trained);
    run.edit(0, 4, "1", |l| l.states[1].dp_rank = 9);
    let strange = [
        "reports of coordinate 9",
        "opened attempt 0 with 4 coordinates",
    ];
    run.world.run(&TRAINED).fails(76, &strange);
}
