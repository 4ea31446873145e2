//! One-line descriptions of log entries, and ranges of steps.

use std::str::FromStr;

use batchweave_core::ids::{Epoch, ProducerName, Step};
use batchweave_core::manifest::Entry;
use batchweave_core::manifest::entry::{AttemptOpened, Opened, Watermark};
use serde::Serialize;

use crate::output::{count, joined, range};

/// A range of steps, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StepRange {
    pub first: Step,
    pub last: Step,
}

impl StepRange {
    /// Formats the range without a noun: `3..5`, or `3`.
    pub fn text(self) -> String {
        range(self.first, self.last.saturating_add(1))
    }
}

impl FromStr for StepRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self { first, last }),
            (Ok(_), Ok(_)) => Err("the first step is above the last".to_owned()),
            _ => Err("write FIRST..LAST, both included, as 1200..1260, or one step".to_owned()),
        }
    }
}

/// Describes an entry on one line that needs no context.
pub fn entry(entry: &Entry) -> String {
    beside(entry, "")
}

/// Describes an entry next to the name of its `writer` (`p0` or `p0/1`), without repeating that name.
pub fn beside(entry: &Entry, writer: &str) -> String {
    let of = |producer: &ProducerName, epoch: Epoch| {
        let name = format!("{producer}/{epoch}");
        if name == writer {
            String::new()
        } else {
            format!(" {name}")
        }
    };
    match entry {
        Entry::Opened(e) => opened(e, writer),
        Entry::Batch(e) => {
            let tgbs = count(e.tgbs.len() as u64, "TGB");
            let seqs = range(e.first_seq, e.last_seq.saturating_add(1));
            let tokens: u64 = e.tgbs.iter().map(|t| t.tokens).sum();
            let of = of(&e.producer, e.epoch);
            format!("batch{of} seq {seqs}: {tgbs}, {tokens} tokens")
        }
        Entry::Finished(e) => {
            let tgbs = count(e.final_seq, "TGB");
            format!("finished{} after {tgbs}", of(&e.producer, e.epoch))
        }
        Entry::Retired(e) => format!("retired{}: {}", of(&e.producer, e.epoch), e.reason),
        Entry::JobOpened(e) => {
            let holds = if e.holds { ", holds data" } else { "" };
            let paces = if e.paces { ", paces producers" } else { "" };
            format!(
                "job {} opened at step {}, keeps {}{holds}{paces}",
                e.job, e.start, e.keep
            )
        }
        Entry::JobClosed(e) => format!("job {}@{} closed: {}", e.job, e.opened, e.reason),
        Entry::AttemptOpened(e) => attempt_opened(e),
        Entry::Mixture(e) => {
            let producers = count(e.from.len() as u64, "producer");
            let by = if e.why.is_some() {
                ", by the losses"
            } else {
                ""
            };
            format!("mixture {} for {producers}{by}", e.id)
        }
        Entry::Stage(e) => {
            let producers = count(e.from.len() as u64, "producer");
            let (rows, seq_len) = (e.rows_per_slice, e.seq_len);
            format!(
                "stage {} {:?}, {rows} x {seq_len}, for {producers}",
                e.id, e.name
            )
        }
        Entry::Quarantined(e) => {
            let steps = range(e.first, e.last.saturating_add(1));
            format!("quarantined steps {steps}: {}", e.reason)
        }
        Entry::QuarantineLifted(e) => format!("quarantine {} lifted", e.quarantine),
        Entry::Watermark(e) => watermark(e),
        Entry::Sealed(e) => format!("sealed: {}", e.reason),
        Entry::Unsealed(e) => format!("unsealed: {}", e.reason),
    }
}

fn opened(e: &Opened, writer: &str) -> String {
    let name = Some(&e.producer)
        .filter(|name| name.as_str() != writer)
        .map_or(String::new(), |name| format!("{name} "));
    format!("opened {name}term {} by {}", e.epoch, e.instance)
}

fn attempt_opened(e: &AttemptOpened) -> String {
    let (job, opened) = (&e.job, e.opened);
    let parent = e.parent.map_or(String::new(), |parent| {
        format!(", out of attempt {} at {}", parent.attempt, parent.step)
    });
    let inherited = e.inherited.map_or(String::new(), |from| {
        format!(
            ", out of attempt {} of the parent stream at {}",
            from.attempt, from.step
        )
    });
    format!(
        "attempt of {job}@{opened} from step {}, dp {}{parent}{inherited}",
        e.start, e.dp_size
    )
}

fn watermark(e: &Watermark) -> String {
    let jobs = e.jobs.iter().map(|held| {
        let attempt = held.attempt.map_or(String::new(), |n| format!("/{n}"));
        format!("{}@{}{attempt}", held.job, held.opened)
    });
    let jobs = match joined(jobs, "") {
        none if none.is_empty() => "no job holds".to_owned(),
        jobs => format!("{jobs} hold"),
    };
    format!("watermark {} ({jobs})", e.step)
}

/// Formats the steps `first` to `last`, both included: `steps 3..5` or `step 3`.
pub fn steps(first: Step, last: Step) -> String {
    let noun = if first == last { "step" } else { "steps" };
    format!("{noun} {}", StepRange { first, last }.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_include_both_ends() {
        let steps = |first, last| Ok(StepRange { first, last });
        assert_eq!("1200..1260".parse(), steps(1200, 1260));
        assert_eq!("7".parse(), steps(7, 7));
        assert_eq!("7..7".parse(), steps(7, 7));
        for bad in ["8..7", "", "..", "1..", "..2", "1...3", "1-3", "-1", "a"] {
            assert!(bad.parse::<StepRange>().is_err(), "{bad:?}");
        }
    }
}
