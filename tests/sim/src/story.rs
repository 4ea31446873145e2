//! A failing run in words: the violations, and the requests that led to them.

use std::fmt::Write;

use batchweave_core::keys;
use batchweave_store::{Effect, Op};

use crate::evidence::Evidence;
use crate::evidence::Violation;
use crate::trace::{Answer, Event, What};

/// The limit of events in a story.
const EVENTS_MAX: usize = 60;

/// Returns the story of a run that broke a rule.
pub fn write(evidence: &Evidence, violations: &[Violation]) -> String {
    let mut story = String::new();
    for v in violations.iter().take(5) {
        let who = evidence.actor(v.actor);
        let place = v
            .version
            .map_or(String::new(), |v| format!(" at version {v}"));
        let _ = writeln!(story, "{}{place}, {who}: {}", v.check, v.text);
    }
    if violations.len() > 5 {
        let _ = writeln!(story, "... and {} more", violations.len() - 5);
    }
    let Some(first) = violations.first() else {
        return story;
    };
    let upto = first.at.unwrap_or(evidence.lasted);
    let told: Vec<_> = evidence
        .events
        .iter()
        .take_while(|e| e.at <= upto)
        // A world that does not end repeats the same requests.
        .filter(|e| matches!(e.what, What::Note(_)) || first.check != "stuck" && is_telling(e))
        .collect();
    let skipped = told.len().saturating_sub(EVENTS_MAX);
    let _ = writeln!(story, "what led there ({skipped} earlier events left out):");
    for event in &told[skipped..] {
        let _ = writeln!(story, "{}", line(evidence, event));
    }
    story
}

/// Returns true for requests on the log, intents, marks and progress, for deletions of data, and
/// for faults of actors.
fn is_telling(event: &Event) -> bool {
    let key = event.key.as_ref();
    let of_the_log = key.starts_with(keys::LOG) || key.starts_with(keys::INTENTS);
    let landed = matches!(event.what, What::Landed { .. });
    let of_jobs =
        key.starts_with(keys::JOBS) || (key.starts_with(keys::DATA) && event.op == Op::Delete);
    let missing = event.what == What::Answered(Answer::Missing);
    let read_sent = event.op != Op::Create && matches!(event.what, What::Sent { .. });
    matches!(event.what, What::Note(_))
        || (of_the_log && !missing && !read_sent)
        || (of_jobs && landed)
}

/// Returns a key without its padding.
fn short(key: &str) -> String {
    match key
        .strip_prefix(keys::LOG)
        .and_then(|k| k.strip_suffix(".json"))
    {
        Some(digits) => format!(
            "log/{}",
            digits.trim_start_matches('0').parse().unwrap_or(0_u64)
        ),
        None => key.to_owned(),
    }
}

fn line(evidence: &Evidence, event: &Event) -> String {
    let key = short(&event.key);
    let (op, request) = (event.op.name(), event.request);
    let words = match &event.what {
        What::Note(text) => text.clone(),
        What::Sent { print, bytes } => {
            format!(
                "sends {op} {key} ({bytes} bytes, {:04x}), request {request}",
                print % 0xffff
            )
        }
        What::Landed { created: true } => format!("request {request} takes effect: {op} {key}"),
        What::Landed { created: false } => {
            format!("request {request} arrives too late: {key} is taken")
        }
        What::Answered(answer) => format!("{op} {key} is answered: {}", said(*answer)),
    };
    let at = event.at.as_secs_f64();
    format!("  {at:10.3} s  {:8} {words}", evidence.actor(event.actor))
}

fn said(answer: Answer) -> String {
    match answer {
        Answer::Created => "created".into(),
        Answer::Exists => "exists already".into(),
        Answer::Found => "here it is".into(),
        Answer::Lied => "here it is, but other bytes arrive".into(),
        Answer::Missing => "not there".into(),
        Answer::Listed(n) => format!("{n} keys"),
        Answer::Deleted => "deleted".into(),
        Answer::Failed(kind, Effect::DidNot) => format!("failed ({kind:?}), surely"),
        Answer::Failed(kind, Effect::Unknown) => format!("failed ({kind:?}), perhaps"),
    }
}
