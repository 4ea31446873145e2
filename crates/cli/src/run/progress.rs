//! The progress of a run: what is produced, what ranks have received, and what is waited for.

use std::fmt::Write as _;
use std::time::Duration;

use batchweave_console::output::count;
use batchweave_core::ids::Step;
use batchweave_daemon::figures::period;
use serde::Serialize;
use tokio::time::Instant;

use super::numbers::Numbers;
use super::pace::Pace;

/// Share of the time above which a wait of the ranks is shown.
const WAIT_SHOWN: f64 = 0.05;

/// The last numbers of both daemons.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) producer: Option<Numbers>,
    pub(super) consumer: Option<Numbers>,
}

/// Facts that the daemons' numbers do not have.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Tokens of one batch; samples of an opaque stream. 0 while there is no stream.
    pub(super) batch_tokens: u64,
    pub(super) opaque: bool,
    /// The producer has finished, with this number of batches.
    pub(super) finished: Option<u64>,
    pub(super) elapsed: Duration,
    /// The producer's batches when it last answered.
    pub(super) batches: u64,
    pub(super) pace: Pace,
    /// Of several jobs those that have not taken all steps, when no rank is connected.
    pub(super) left: Vec<String>,
}

/// One report; with `--json` one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Progress {
    seconds: u64,
    batches: u64,
    /// Tokens of these batches; samples of an opaque stream.
    tokens: u64,
    tokens_per_second: f64,
    finished: bool,
    /// About how much of the input, or of producer.limit, is produced; `None` where it has no end.
    percent: Option<f64>,
    ranks: u64,
    /// The next step of the slowest connected rank.
    step: Option<Step>,
    /// Steps in the stream.
    steps: u64,
    steps_per_second: f64,
    /// About how many steps the whole stream will have.
    steps_expected: Option<u64>,
    /// About how long the slowest rank will take for these, or the producer while no rank is connected.
    seconds_left: Option<u64>,
    /// The causes of waits; empty when no rank waits.
    waits: Vec<String>,
    #[serde(skip)]
    opaque: bool,
}

impl Progress {
    /// Returns the progress between two polls of the daemons.
    pub(super) fn new(before: &Seen, now: &Seen, known: &mut Known) -> Self {
        let of = |numbers: Option<&Numbers>, name| numbers.map_or(0.0, |n| n.sum(name));
        let (producer, consumer) = (now.producer.as_ref(), now.consumer.as_ref());
        let delivered = rate(before.consumer.as_ref(), consumer, "steps_delivered_total");
        let batches = known
            .finished
            .unwrap_or_else(|| (of(producer, "batches") as u64).max(known.batches));
        known.batches = batches;
        let ranks = of(consumer, "sessions") as u64;
        let least = consumer.and_then(|n| n.samples.least("rank_step"));
        let head = of(consumer, "head_step") as u64;
        let steps = head.max(batches);
        let finished = known.finished.is_some();
        let done = || producer.and_then(|n| n.samples.least("done_ratio"));
        let share = if finished { 1.0 } else { done().unwrap_or(0.0) };
        let held = of(producer, "held") > 0.0;
        let step = least.filter(|_| ranks > 0);
        let outlook = known.pace.add(Instant::now(), share, steps as f64, step);
        let seconds_left = match step {
            Some(_) => outlook.trained_in,
            None => outlook.produced_in.filter(|_| !finished && !held),
        };
        Self {
            seconds: known.elapsed.as_secs(),
            batches,
            tokens: batches * known.batch_tokens,
            tokens_per_second: rate(before.producer.as_ref(), producer, "tgbs_total")
                * known.batch_tokens as f64,
            finished,
            percent: (share > 0.0 && !finished).then(|| (share * 1000.0).floor() / 10.0),
            ranks,
            step: step.map(|step| step as Step),
            steps,
            steps_expected: outlook.steps.map(|steps| steps.round() as u64),
            seconds_left: seconds_left.map(|seconds| seconds.round() as u64),
            steps_per_second: delivered / ranks.max(1) as f64,
            waits: waits(before, now, known),
            opaque: known.opaque,
        }
    }

    /// Formats the progress as one line.
    pub(super) fn line(&self) -> String {
        let (minutes, seconds) = (self.seconds / 60, self.seconds % 60);
        let unit = if self.opaque { "sample" } else { "token" };
        // First, since a narrow terminal shows the beginning.
        let left = self.seconds_left.map_or(String::new(), |seconds| {
            format!("{} left; ", period(seconds as f64))
        });
        let mut line = format!(
            "{minutes:02}:{seconds:02}  {left}produced {}, {}",
            count(self.batches, "batch"),
            amount(self.tokens, unit),
        );
        if self.finished {
            line += ", finished";
        } else if self.tokens_per_second > 0.0 {
            let _ = write!(line, ", {}/s", short(self.tokens_per_second));
        }
        if let Some(percent) = self.percent {
            let _ = write!(line, ", about {percent:.0} % of all");
        }
        self.push_reading(&mut line);
        for wait in &self.waits {
            let _ = write!(line, "; {wait}");
        }
        line
    }

    /// Appends how far the ranks are.
    fn push_reading(&self, line: &mut String) {
        match self.step {
            Some(step) => {
                let (ranks, steps) = (count(self.ranks, "rank"), self.steps);
                let _ = write!(line, "; {ranks} at step {step} of {steps}");
                let expected = self.steps_expected.filter(|all| *all > 0);
                if let Some(all) = expected {
                    let percent = (step as f64 * 100.0 / all as f64).min(100.0);
                    let _ = write!(line, ", {percent:.0} % of the run");
                }
                if self.steps_per_second > 0.0 {
                    let _ = write!(line, ", {:.1} steps/s", self.steps_per_second);
                }
            }
            None if self.ranks > 0 => {
                let _ = write!(line, "; {} connected", count(self.ranks, "rank"));
            }
            None => line.push_str("; no rank is connected"),
        }
    }
}

/// Formats a number of batches with their tokens or samples.
pub(super) fn batches(number: u64, known: &Known) -> String {
    let unit = if known.opaque { "sample" } else { "token" };
    let batches = count(number, "batch");
    format!("{batches}, {}", amount(number * known.batch_tokens, unit))
}

fn amount(number: u64, unit: &str) -> String {
    if number < 10_000_000 {
        return count(number, unit);
    }
    format!("{} {unit}s", short(number as f64))
}

/// Formats a large number shortly: 1234567 is `1.2M`.
fn short(number: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.iter().find(|(size, _)| number >= *size) {
        Some((size, unit)) => format!("{:.1}{unit}", number / size),
        None => format!("{number:.0}"),
    }
}

/// Returns the growth of a counter per second; 0 after a restart.
fn rate(before: Option<&Numbers>, now: Option<&Numbers>, name: &str) -> f64 {
    let (Some(before), Some(now)) = (before, now) else {
        return 0.0;
    };
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    (now.sum(name) - before.sum(name)).max(0.0) / seconds.max(0.001)
}

fn waits(before: &Seen, now: &Seen, known: &Known) -> Vec<String> {
    let mut waits = Vec::new();
    if known.finished.is_none() {
        match &now.producer {
            None => waits.push("the producer is starting".to_owned()),
            Some(producer) if !producer.ready || producer.sum("held") > 0.0 => {
                waits.push(format!("producer: {}", producer.doing));
            }
            Some(_) => {}
        }
    }
    match &now.consumer {
        None => waits.push("the consumer is starting".to_owned()),
        Some(consumer) if !consumer.ready => waits.push(format!("consumer: {}", consumer.doing)),
        Some(_) => {}
    }
    let idle = now
        .consumer
        .as_ref()
        .is_some_and(|n| n.sum("sessions") < 0.5);
    if idle && !known.left.is_empty() {
        waits.push(format!("not all steps: job {}", known.left.join(", job ")));
    }
    if let (Some(before), Some(now)) = (&before.consumer, &now.consumer) {
        waits.extend(rank_wait(before, now));
    }
    waits
}

/// Returns the cause that ranks waited for most, with its share of their time.
fn rank_wait(before: &Numbers, now: &Numbers) -> Option<String> {
    const WAITED: &str = "rank_wait_seconds_total";
    let ranks = now.sum("sessions").max(1.0);
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(0.001) * ranks;
    let earlier = before.samples.sums_by(WAITED, "cause");
    let grown = now
        .samples
        .sums_by(WAITED, "cause")
        .into_iter()
        .map(|(cause, total)| {
            let grown = total - earlier.get(cause).copied().unwrap_or(0.0);
            (cause, grown / seconds)
        });
    let (cause, share) = grown.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let percent = (share * 100.0).min(100.0);
    (share >= WAIT_SHOWN).then(|| format!("ranks wait {percent:.0} % of the time ({cause})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(batches: u32, held: u8, step: u32, waited: u32) -> Seen {
        let producer = format!(
            "batchweave_producer_batches {batches}\nbatchweave_producer_tgbs_total {batches}\n\
             batchweave_producer_held {held}\n"
        );
        let consumer = format!(
            "batchweave_consumer_sessions 2\nbatchweave_consumer_head_step {batches}\n\
             batchweave_consumer_rank_step{{dp_rank=\"0\"}} {step}\n\
             batchweave_consumer_rank_step{{dp_rank=\"1\"}} {}\n\
             batchweave_consumer_steps_delivered_total{{dp_rank=\"0\"}} {step}\n\
             batchweave_consumer_steps_delivered_total{{dp_rank=\"1\"}} {step}\n\
             batchweave_consumer_rank_wait_seconds_total{{cause=\"producing\",dp_rank=\"0\"}} {waited}\n",
            step + 1
        );
        Seen {
            producer: Some(Numbers::new(&producer, true, "held back by job train")),
            consumer: Some(Numbers::new(&consumer, true, "2 ranks")),
        }
    }

    fn known() -> Known {
        Known {
            batch_tokens: 2048,
            elapsed: Duration::from_secs(75),
            ..Known::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_shows_both_daemons_and_what_is_waited_for() {
        let before = seen(40, 0, 10, 0);
        tokio::time::advance(Duration::from_secs(2)).await;
        let now = seen(60, 0, 30, 1);
        let progress = Progress::new(&before, &now, &mut known());
        assert_eq!(
            progress.line(),
            "01:15  produced 60 batches, 122880 tokens, 20.5k/s; 2 ranks at step 30 of 60, 10.0 steps/s; \
             ranks wait 25 % of the time (producing)"
        );
        let held = seen(60, 1, 30, 1);
        let line = Progress::new(&now, &held, &mut known()).line();
        assert!(
            line.ends_with("; producer: held back by job train"),
            "{line}"
        );
        let mut finished = Known {
            finished: Some(61),
            ..known()
        };
        let line = Progress::new(&now, &held, &mut finished).line();
        assert!(
            line.contains("produced 61 batches, 124928 tokens, finished; 2 ranks at step 30 of 61, 49 % of the run"),
            "{line}"
        );
        assert!(!line.contains("held"), "{line}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_has_percent_and_the_time_left() {
        let numbers = |text: &str| Some(Numbers::new(text, true, "producing"));
        let mut known = known();
        let mut before = Seen::default();
        let mut line = String::new();
        for second in 0..=10_u32 {
            let producer = format!(
                "batchweave_producer_batches {second}\nbatchweave_producer_done_ratio {}\n",
                f64::from(second) / 40.0
            );
            let now = Seen {
                producer: numbers(&producer),
                consumer: numbers(""),
            };
            line = Progress::new(&before, &now, &mut known).line();
            before = now;
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(
            line,
            "01:15  30 s left; produced 10 batches, 20480 tokens, about 25 % of all; no rank is connected"
        );
        let mut known = super::tests::known();
        for second in 0..=10_u32 {
            let now = seen(40, 0, second, 0);
            let producer = "batchweave_producer_batches 40\nbatchweave_producer_done_ratio 0.5\n";
            let now = Seen {
                producer: numbers(producer),
                ..now
            };
            line = Progress::new(&before, &now, &mut known).line();
            before = now;
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(
            line.starts_with("01:15  1 min 10 s left; produced 40 batches, 81920 tokens, about 50 % of all; 2 ranks at step 10 of 40, 12 % of the run, 1.0 steps/s"),
            "{line}"
        );
    }

    #[tokio::test]
    async fn daemons_that_do_not_answer_are_starting() {
        let nothing = Seen::default();
        let line = Progress::new(&nothing, &nothing, &mut Known::default()).line();
        assert_eq!(
            line,
            "00:00  produced 0 batches, 0 tokens; no rank is connected; the producer is starting; \
             the consumer is starting"
        );
        let waiting = Seen {
            consumer: Some(Numbers::new("", false, "waiting for the stream")),
            producer: Some(Numbers::new("", true, "producing")),
        };
        let progress = Progress::new(&nothing, &waiting, &mut Known::default());
        assert_eq!(progress.waits, ["consumer: waiting for the stream"]);
    }

    #[test]
    fn large_numbers_are_short() {
        assert_eq!(amount(9_999_999, "token"), "9999999 tokens");
        assert_eq!(amount(12_345_678_901, "token"), "12.3G tokens");
        assert_eq!(short(999.0), "999");
        let opaque = Known {
            opaque: true,
            batch_tokens: 8,
            ..Known::default()
        };
        assert_eq!(batches(1, &opaque), "1 batch, 8 samples");
    }
}
