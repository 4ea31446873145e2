//! The arguments of a driver, functions of users, and what waits is said.

use batchweave_core::drive::{SourceWhy, Why};
use batchweave_core::ids::AttemptId;
use clap::Parser;

use super::dry_run_report::{DryRunReport, Replayed, ReplayedSource};
use super::function::{Function, Question};
use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: DriveArgs,
}

fn refused(args: &[&str]) -> String {
    let all = ["drive", "--job", "llm", "--every", "10"]
        .iter()
        .chain(args);
    match Line::try_parse_from(all) {
        Ok(line) => line.args.driver().unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn settings_that_do_not_belong_together_are_refused() {
    for (args, says) in [
        (
            &["--rule", "target"][..],
            "--rule target needs --target SOURCE=LOSS",
        ),
        (
            &["--rule", "target", "--sum", "--target", "a=1"],
            "--sum belongs to --rule odm",
        ),
        (
            &["--rule", "odm", "--target", "a=1"],
            "--target belongs to --rule target",
        ),
        (
            &["--rule", "target", "--target", "a=nan"],
            "--target a=NaN: a loss is",
        ),
        (
            &["--rule", "target", "--target", "a=0"],
            "--target a=0: a loss is",
        ),
        (
            &["--rule", "target", "--target", "a=1", "--target", "a=2"],
            "--target a is given twice",
        ),
        (
            &["--rule", "function"],
            "--rule function needs --function FILE:NAME",
        ),
        (
            &["--rule", "odm", "--function", "a.py:b"],
            "--function belongs to --rule function",
        ),
        (
            &["--rule", "function", "--function", "a.py"],
            "invalid --function \"a.py\"",
        ),
        (
            &["--rule", "function", "--function", "none.py:f"],
            "none.py is not a file",
        ),
        (
            &["--rule", "odm", "--floor", "0"],
            "floor 0, ceiling 1 and step bound 1 must be above 0",
        ),
        (
            &["--rule", "odm", "--step-bound", "nan"],
            "step bound NaN must be above 0",
        ),
        (&["--rule", "odm", "--poll", "0s"], "a time above 0"),
    ] {
        let error = refused(args);
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

fn why() -> Why {
    let source = |number, name: &str, sum, weight| SourceWhy {
        number,
        name: name.into(),
        sum,
        weight,
        before: 0.5,
        reward_before: None,
        reward: None,
        wanted: None,
        share: 0.5,
    };
    let line = ["drive", "--job", "llm", "--every", "10", "--rule", "odm"];
    let args = Line::try_parse_from(line).unwrap().args;
    Why {
        settings: args.driver().unwrap().settings,
        job: "llm".parse().unwrap(),
        opened: 1,
        attempt: 0,
        attempt_id: AttemptId([1; 16]),
        from: 0,
        to: 10,
        change: 1,
        after: None,
        read: 10,
        counted: 10,
        sources: vec![source(0, "web", 20.0, 10.0), source(1, "code", 0.0, 0.0)],
    }
}

/// Asks a function with this body.
async fn answered(body: &str) -> Result<std::collections::BTreeMap<String, f64>, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rule.py");
    std::fs::write(&file, format!("def weights(state):\n    {body}\n")).unwrap();
    let text = format!("{}:weights", file.display());
    let function = Function::parse(&text, "python3".as_ref()).unwrap();
    let why = why();
    let answer = function.ask(&Question::new(&why)).await;
    answer.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_function_gets_the_losses_and_gives_weights() {
    let body = "print('noise'); return {s['name']: s['loss'] * s['tokens'] + state['to'] for s in state['sources']}";
    let answer = answered(body).await.unwrap();
    assert_eq!(answer, [("web".to_owned(), 30.0)].into());
}

#[tokio::test]
async fn a_function_that_returns_nonsense_is_named() {
    for (body, says) in [
        ("return {'web': float('nan')}", "not JSON compliant"),
        ("return 'web'", "failed: ValueError"),
        (
            "return {'web': 'much'}",
            "failed: ValueError: could not convert",
        ),
        ("raise KeyError('x')", "failed: KeyError: 'x'"),
        ("import os; os._exit(0)", "gave no weights: "),
        ("import os; os._exit(3)", "failed: without a message"),
    ] {
        let error = answered(body).await.unwrap_err();
        assert!(error.contains(says), "{body}: {error}");
        assert!(error.contains("rule.py:weights"), "{error}");
        assert!(error.contains("nothing is changed"), "{error}");
    }
    let program = Function::parse("/etc/hostname:f", "no-such-python".as_ref());
    let why = why();
    let error = program
        .unwrap()
        .ask(&Question::new(&why))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("cannot start no-such-python"),
        "{error}"
    );
}

#[test]
fn a_waiting_driver_speaks_when_it_waits_for_another_actor() {
    let report = |actor: &str| DriveReport {
        root: "file:///s".into(),
        job: "llm@1".into(),
        waiting: Some("because".into()),
        actor: actor.into(),
        without_values: Vec::new(),
        change: None,
        closed: false,
    };
    let mut shown = Shown::default();
    let news = [
        "coordinate 1",
        "coordinate 1",
        "coordinate 0",
        "the stream",
        "the stream",
    ];
    let news = news.map(|actor| shown.is_news(&report(actor)));
    assert_eq!(news, [true, false, true, true, false]);
}

#[test]
fn a_plot_has_a_line_for_each_source_and_measure() {
    let source = |name: &str, loss, share| ReplayedSource {
        source: name.into(),
        loss,
        tokens: 0.5,
        share,
    };
    let change = |change, web| Replayed {
        change,
        from: 10 * change,
        to: 10 * change + 10,
        sources: vec![
            source("a<b", Some(2.0), web),
            source("code", None, 1.0 - web),
        ],
    };
    let report = DryRunReport {
        root: "file:///s".into(),
        job: "llm@1".into(),
        rule: "odm".into(),
        from: 0,
        to: 40,
        without_values: 0,
        changes: vec![change(1, 0.5), change(2, 0.4), change(3, 0.3)],
    };
    let svg = plot::svg(&report);
    assert_eq!(svg.matches("<polyline").count(), 4, "{svg}");
    assert!(svg.contains("a&lt;b") && !svg.contains("NaN"), "{svg}");
    let text = render::dry_run(&report, batchweave_console::output::Style::default());
    assert!(
        text.contains("a<b LOSS") && text.contains("30.0 %"),
        "{text}"
    );
}
