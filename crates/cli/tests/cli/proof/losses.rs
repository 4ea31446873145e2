//! `batchweave losses`: of the newest lineage only, with what was not reported named.

use batchweave_core::values::{
    DetailLoss, DetailOf, SourceLoss, StepValues, ValuesBlock, ValuesObject,
};

use super::*;

impl Run {
    /// Stores losses of all attempts, an object per ledger: of each attempt, coordinate and step.
    fn lose(&self, values: impl Fn(u64, u32, Step) -> Option<(DetailOf, StepValues)>) {
        let stream = self.world.json(&["status"])["stream"]["stream_id"].clone();
        for attempt in self.dp.keys() {
            let folder = self.path(*attempt, 0, "0");
            for (n, file) in (0..).zip(fs::read_dir(folder.parent().unwrap()).unwrap()) {
                let path = file.unwrap().path();
                let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
                value.as_object_mut().unwrap().remove("digest");
                let ledger: Ledger = serde_json::from_value(value).unwrap();
                let mut blocks = Vec::new();
                for entry in &ledger.entries {
                    let all = entry.steps();
                    let all = all.filter_map(|(step, _)| values(*attempt, entry.dp_rank, step));
                    let all: Vec<_> = all.collect();
                    let Some((of, _)) = all.first() else {
                        continue;
                    };
                    blocks.push(ValuesBlock {
                        dp_rank: entry.dp_rank,
                        rank: None,
                        first_slice: entry.first_slice,
                        slices: entry.slices,
                        of: *of,
                        part: false,
                        steps: all.into_iter().map(|(_, values)| values).collect(),
                    });
                }
                let object = ValuesObject {
                    stream: stream.as_str().unwrap().parse().unwrap(),
                    attempt: ledger.id,
                    blocks,
                };
                if object.blocks.is_empty() {
                    continue;
                }
                let job = JOB.parse().unwrap();
                let steps = object.steps();
                let key = keys::values(&job, self.opened, *attempt, steps, "a1", n);
                let path = self.world.path(&key);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, object.encode()).unwrap();
            }
        }
    }
}

/// The loss of a step in every attempt that counts; in the abandoned one it is 1000.
fn loss_of(attempt: u64, step: Step) -> f64 {
    if attempt == 2 { 1000.0 } else { step as f64 }
}

fn of_step(attempt: u64, rank: u32, step: Step) -> (DetailOf, StepValues) {
    let loss = loss_of(attempt, step);
    let source = |source, weight: f32, loss: f64| SourceLoss {
        source,
        sum: loss as f32 * weight,
        weight,
    };
    let row = |mean: f64| DetailLoss {
        mean: mean as f32,
        weight: 8.0,
    };
    let values = StepValues {
        step,
        sum: loss * 16.0,
        weight: 16.0,
        nonfinite: u32::from(step == 7),
        sources: vec![source(0, 4.0, loss - 3.0), source(1, 12.0, loss + 1.0)],
        details: vec![row(loss + f64::from(rank)), row(loss - f64::from(rank))],
        ..StepValues::default()
    };
    (DetailOf::Row, values)
}

fn losses<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["losses", "--job", JOB], more].concat()
}

/// Attempt 2 is abandoned, steps 21 and 22 are quarantined, and a restart repeats steps.
#[tokio::test]
async fn losses_of_abandoned_steps_do_not_count_by_step_and_source() {
    let run = Run::honest().await;
    run.world.run(&losses(&[])).fails(
        1,
        &[
            "job llm of",
            "has no losses: its trainer reports none",
            "reader.report(batch, loss=...)",
        ],
    );
    run.lose(|attempt, rank, step| Some(of_step(attempt, rank, step)));
    let report = run.world.json(&losses(&[]));
    assert_eq!((&report["from"], &report["to"]), (&0.into(), &40.into()));
    assert_eq!(
        (&report["read"], &report["with_losses"]),
        (&38.into(), &38.into())
    );
    let steps = report["losses"].as_array().unwrap();
    let found: Vec<(u64, f64)> = steps
        .iter()
        .map(|one| (one["step"].as_u64().unwrap(), one["loss"].as_f64().unwrap()))
        .collect();
    let expected = (0..40).filter(|step| ![21, 22].contains(step));
    assert_eq!(
        found,
        expected.map(|step| (step, step as f64)).collect::<Vec<_>>()
    );
    assert_eq!(
        (&steps[9]["attempt"], &steps[9]["of"]),
        (&0.into(), &4.into())
    );
    assert_eq!(
        (&steps[10]["attempt"], &steps[10]["of"]),
        (&1.into(), &2.into())
    );
    run.world.run(&losses(&[])).prints(&[
        "steps 0..39",
        "STEPS",
        "4 tokens had a NaN or infinite loss",
    ]);
    let highest = run.world.json(&losses(&["--top", "2", "--steps", "5..20"]));
    let highest: Vec<_> = highest["losses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["step"].clone())
        .collect();
    assert_eq!(highest, [20, 19]);
    let sources = run
        .world
        .json(&losses(&["--by", "source", "--steps", "30..39"]));
    let sources: Vec<(f64, f64)> = sources["losses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["loss"].as_f64().unwrap(),
                one["tokens"].as_f64().unwrap(),
            )
        })
        .collect();
    assert_eq!(sources, [(31.5, 160.0), (35.5, 480.0)]);
}

#[tokio::test]
async fn rows_have_their_places_and_the_highest_loss_is_first() {
    let run = Run::honest().await;
    run.lose(|attempt, rank, step| Some(of_step(attempt, rank, step)));
    let report = run.world.json(&losses(&["--by", "row", "--top", "3"]));
    let rows: Vec<_> = report["losses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["loss"].as_f64().unwrap(),
                one["step"].as_u64().unwrap(),
                one["slice"].as_u64().unwrap(),
                one["row"].as_u64().unwrap(),
            )
        })
        .collect();
    // Coordinate 3 of 4 has slice 3, and the first of its rows has the loss of the step + 3.
    assert_eq!(rows, [(42.0, 39, 3, 0), (41.0, 38, 3, 0), (41.0, 39, 2, 0)]);
    assert_eq!(report["unjoined"], 3, "the stream stores no provenance");
    run.world.run(&losses(&["--by", "row"])).prints(&[
        "LOSS",
        "DOCUMENTS",
        "could not be joined with input files",
    ]);
    run.world
        .run(&losses(&["--by", "document"]))
        .prints(&["could not be joined"]);
    run.world
        .run(&losses(&["--by", "row", "--decode", "--json"]))
        .fails(64, &["--decode shows rows or documents: add --by document"]);
}

#[tokio::test]
async fn steps_without_a_loss_and_foreign_objects_are_named() {
    let run = Run::honest().await;
    run.lose(|attempt, rank, step| {
        let (_, mut values) = of_step(attempt, rank, step);
        (values.sources, values.details) = (Vec::new(), Vec::new());
        let lacks = rank == 1 && step == 5 || step == 12;
        (!lacks).then_some((DetailOf::None, values))
    });
    run.world
        .run(&losses(&[]))
        .prints(&["2 steps have no loss of some coordinate"]);
    run.world
        .run(&losses(&["--by", "source"]))
        .fails(1, &["no losses of sources", "source_ids"]);
    run.world
        .run(&losses(&["--by", "row"]))
        .fails(1, &["no losses of rows", "LossReporter"]);
    run.world
        .run(&losses(&["--steps", "50..60"]))
        .fails(1, &["has losses of steps 0 to 39 only"]);
    let job = JOB.parse().unwrap();
    let foreign = run
        .world
        .path(&keys::values(&job, run.opened, 5, (30, 33), "a1", 9));
    fs::write(&foreign, b"BWVALUE1").unwrap();
    run.world.run(&losses(&[])).fails(
        76,
        &["reports/000000000030-000000000033-a1.9.bwr", "is cut short"],
    );
}

#[tokio::test]
async fn a_parquet_file_has_all_lines() {
    let run = Run::honest().await;
    run.lose(|attempt, rank, step| Some(of_step(attempt, rank, step)));
    let file = run.world.path("losses.parquet");
    let name = file.to_str().unwrap();
    run.world
        .run(&losses(&["--by", "row", "--parquet", name]))
        .prints(&["lines written to"]);
    let bytes = fs::read(&file).unwrap();
    assert_eq!(
        (&bytes[..4], &bytes[bytes.len() - 4..]),
        (&b"PAR1"[..], &b"PAR1"[..])
    );
    run.world
        .run(&losses(&["--parquet", "/nonexistent/x.parquet"]))
        .fails(65, &["--parquet /nonexistent/x.parquet: No such file"]);
}
