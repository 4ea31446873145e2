//! The bound on the lead of the producer: `run` sets one where the file has none, since the whole input would be stored
//! before a rank connects.

use batchweave_console::output::bytes;
use batchweave_daemon::disk::free_space;
use batchweave_daemon::figures::grouped;
use serde_json::{Map, Value};

/// Steps that the producer may be ahead of the slowest rank.
const STEPS: u64 = 1000;
/// The part of a local store's free space that the lead may take.
const PART_OF_FREE: u64 = 4;
/// Least size of the bound in bytes.
const BYTES_MIN: u64 = 1 << 20;

/// The bound of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lead {
    /// That of the file, in its words; `None` without a bound.
    Given(Option<String>),
    /// That of `run`: steps, and bytes of a local store.
    Set { steps: u64, bytes: Option<u64> },
    /// None, because the job does not pace producers, so that nothing would free them.
    NoPacing,
}

impl Lead {
    /// Returns the bound for the tables `[ahead]` and `[job]` of the file and the stream's URL.
    pub(super) fn new(ahead: &Map<String, Value>, job: &Map<String, Value>, url: &str) -> Self {
        let keys = ["max_steps", "max_bytes"];
        let given: Vec<(&&str, &Value)> = keys
            .iter()
            .filter_map(|key| Some((key, ahead.get(*key)?)))
            .collect();
        if !given.is_empty() {
            let bounds = given.iter().filter(|(_, value)| !is_zero(value));
            let bounds: Vec<String> = bounds
                .map(|(key, value)| format!("ahead.{key} = {value}"))
                .collect();
            return Self::Given((!bounds.is_empty()).then(|| bounds.join(", ")));
        }
        if job.get("paces") == Some(&Value::Bool(false)) {
            return Self::NoPacing;
        }
        let free = free_space(url).map(|free| free.bytes / PART_OF_FREE);
        Self::Set {
            steps: STEPS,
            bytes: free.map(|bytes| bytes.max(BYTES_MIN)),
        }
    }

    /// Returns the keys and values that the producer gets.
    pub(super) fn assignments(&self) -> Vec<String> {
        let Self::Set { steps, bytes } = self else {
            return Vec::new();
        };
        let steps = format!("ahead.max_steps={steps}");
        let bytes = bytes.map(|bytes| format!("ahead.max_bytes=\"{bytes}B\""));
        std::iter::once(steps).chain(bytes).collect()
    }

    /// Returns the words about the bound for the first lines.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Given(Some(bound)) => format!("{bound}, ahead of the slowest rank"),
            Self::Given(None) => "no bound: all input is stored as fast as it can be".to_owned(),
            Self::NoPacing => {
                "no bound, since job.paces = false: all input is stored as fast as it can be"
                    .to_owned()
            }
            Self::Set { steps, bytes: most } => {
                let most = most.map_or(String::new(), |most| format!(" and {}", bytes(most)));
                format!(
                    "at most {} steps{most} ahead of the slowest rank; ahead.max_steps in the file changes it, 0 removes it",
                    grouped(*steps)
                )
            }
        }
    }
}

fn is_zero(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    value == &Value::from(0) || digits.trim() == "0"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lead(ahead: &Value, job: &Value, url: &str) -> Lead {
        let table = |value: &Value| value.as_object().unwrap().clone();
        Lead::new(&table(ahead), &table(job), url)
    }

    #[test]
    fn a_run_is_bounded_unless_the_file_says_otherwise() {
        let none = json!({});
        let set = lead(&none, &none, "s3://bucket/x");
        assert_eq!(set.assignments(), ["ahead.max_steps=1000"]);
        assert!(
            set.text().starts_with("at most 1,000 steps ahead of"),
            "{}",
            set.text()
        );
        let local = lead(&none, &none, "file:///tmp/absent").assignments();
        assert!(
            local[1].starts_with("ahead.max_bytes=\"") && local[1].ends_with("B\""),
            "{local:?}"
        );
        for (ahead, job, text) in [
            (
                json!({"max_steps": 7}),
                &none,
                "ahead.max_steps = 7, ahead of the slowest rank",
            ),
            (
                json!({"max_bytes": "1GiB"}),
                &none,
                "ahead.max_bytes = \"1GiB\", ahead of the slowest rank",
            ),
            (
                json!({"max_steps": 0, "max_bytes": "0B"}),
                &none,
                "no bound: all input is stored as fast as it can be",
            ),
            (
                json!({"lane_lead": 3}),
                &json!({"paces": false}),
                "no bound, since job.paces = false: all input is stored as fast as it can be",
            ),
        ] {
            let lead = lead(&ahead, job, "file:///tmp");
            assert_eq!(lead.text(), text);
            assert_eq!(lead.assignments(), [""; 0]);
        }
    }
}
