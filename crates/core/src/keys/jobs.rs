//! Keys of a job's attempts: marks, progress, ledgers, values. The names hold all that a LIST must show, so that
//! positions and restart points cost no GET.

use super::JOBS;
use crate::ids::{AttemptNo, JobName, Step, Version};
use crate::limits::NUMBER_MAX;

/// The coordinate in a mark's key when one rank marks for all coordinates.
const FOR_ALL: &str = "all";

/// Returns the folder of one incarnation of a job.
pub fn job_folder(job: &JobName, opened: Version) -> String {
    format!("{JOBS}{job}@{opened}/")
}

/// Returns the folder of one attempt of one incarnation of a job.
pub fn attempt_folder(job: &JobName, opened: Version, attempt: AttemptNo) -> String {
    format!("{JOBS}{job}@{opened}/{attempt}/")
}

/// Returns the folder of the marks of an attempt.
pub fn marks(job: &JobName, opened: Version, attempt: AttemptNo) -> String {
    format!("{}marks/", attempt_folder(job, opened, attempt))
}

/// Returns the folder of the progress objects of an attempt.
pub fn progress_of(job: &JobName, opened: Version, attempt: AttemptNo) -> String {
    format!("{}progress/", attempt_folder(job, opened, attempt))
}

/// Returns the folder of the ledger objects of an attempt.
pub fn ledgers(job: &JobName, opened: Version, attempt: AttemptNo) -> String {
    format!("{}ledger/", attempt_folder(job, opened, attempt))
}

/// Returns the key of a mark: the data coordinate can restart from `step`; without a coordinate, one rank
/// marks for all.
pub fn mark(
    job: &JobName,
    opened: Version,
    attempt: AttemptNo,
    step: Step,
    coordinate: Option<u32>,
) -> String {
    let folder = marks(job, opened, attempt);
    match coordinate {
        Some(coordinate) => format!("{folder}{step:012}-{coordinate}.json"),
        None => format!("{folder}{step:012}-{FOR_ALL}.json"),
    }
}

/// Returns the key of a progress object: the coordinates from the first to the last one of `coordinates`, all on
/// this node, have received every step below `step`.
pub fn progress(
    job: &JobName,
    opened: Version,
    attempt: AttemptNo,
    step: Step,
    coordinates: (u32, u32),
    node: &str,
) -> String {
    let (first, last) = coordinates;
    let folder = progress_of(job, opened, attempt);
    format!("{folder}{step:012}-{first}_{last}-{node}.json")
}

/// Returns the key of a heartbeat: ranks of this node are connected. Only jobs with a lease have
/// heartbeats; each replaces the last one of its node.
pub fn alive(job: &JobName, opened: Version, attempt: AttemptNo, beat: u64, node: &str) -> String {
    let folder = progress_of(job, opened, attempt);
    format!("{folder}alive-{beat:012}-{node}.json")
}

/// Returns the key of a ledger object: the deliveries of a node from step `first` on; `number` counts its
/// ledger objects.
pub fn ledger(
    job: &JobName,
    opened: Version,
    attempt: AttemptNo,
    first: Step,
    node: &str,
    number: u64,
) -> String {
    let folder = ledgers(job, opened, attempt);
    format!("{folder}{first:012}-{node}.{number}.json")
}

/// Returns the folder of the objects of values of an attempt.
pub fn values_of(job: &JobName, opened: Version, attempt: AttemptNo) -> String {
    format!("{}reports/", attempt_folder(job, opened, attempt))
}

/// Returns the key of an object of values: losses that a node's ranks reported of steps from the first to the last one of
/// `steps`; `number` counts its objects.
pub fn values(
    job: &JobName,
    opened: Version,
    attempt: AttemptNo,
    steps: (Step, Step),
    node: &str,
    number: u64,
) -> String {
    let (first, last) = steps;
    let folder = values_of(job, opened, attempt);
    format!("{folder}{first:012}-{last:012}-{node}.{number}.bwr")
}

/// The attempt that owns an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub job: JobName,
    pub opened: Version,
    pub attempt: AttemptNo,
}

/// The content of a mark's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkKey {
    pub owner: Owner,
    /// First step not yet trained.
    pub step: Step,
    /// The data coordinate; `None` when one rank marks for all.
    pub coordinate: Option<u32>,
}

/// The content of a progress object's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressKey {
    pub owner: Owner,
    /// All steps below it were received.
    pub step: Step,
    pub first: u32,
    pub last: u32,
    pub node: String,
}

/// The content of a heartbeat's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliveKey {
    pub owner: Owner,
    /// Counts the heartbeats of this daemon.
    pub beat: u64,
    pub node: String,
}

/// The content of a ledger object's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerKey {
    pub owner: Owner,
    /// First step in it.
    pub first: Step,
    pub node: String,
    /// The number of the object among those of this daemon.
    pub number: u64,
}

/// The content of the key of an object of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValuesKey {
    pub owner: Owner,
    /// First and last step in it.
    pub first: Step,
    pub last: Step,
    pub node: String,
    /// The number of the object among those of this daemon.
    pub number: u64,
}

/// Parses a mark's key.
pub fn parse_mark(key: &str) -> Option<MarkKey> {
    let (owner, name) = within(key, "marks")?;
    let (step, coordinate) = name.split_once('-')?;
    Some(MarkKey {
        owner,
        step: padded(step)?,
        coordinate: match coordinate {
            FOR_ALL => None,
            coordinate => Some(plain(coordinate)?.try_into().ok()?),
        },
    })
}

/// Parses a progress object's key.
pub fn parse_progress(key: &str) -> Option<ProgressKey> {
    let (owner, name) = within(key, "progress")?;
    let mut fields = name.splitn(3, '-');
    let (step, range, node) = (fields.next()?, fields.next()?, fields.next()?);
    let (first, last) = range.split_once('_')?;
    let (first, last) = (
        plain(first)?.try_into().ok()?,
        plain(last)?.try_into().ok()?,
    );
    (first <= last && is_node(node)).then_some(())?;
    Some(ProgressKey {
        owner,
        step: padded(step)?,
        first,
        last,
        node: node.to_owned(),
    })
}

/// Parses a heartbeat's key.
pub fn parse_alive(key: &str) -> Option<AliveKey> {
    let (owner, name) = within(key, "progress")?;
    let (beat, node) = name.strip_prefix("alive-")?.split_once('-')?;
    is_node(node).then_some(())?;
    Some(AliveKey {
        owner,
        beat: padded(beat)?,
        node: node.to_owned(),
    })
}

/// Parses a ledger object's key.
pub fn parse_ledger(key: &str) -> Option<LedgerKey> {
    let (owner, name) = within(key, "ledger")?;
    let (first, node, number) = numbered(name)?;
    Some(LedgerKey {
        owner,
        first,
        node,
        number,
    })
}

/// Parses the key of an object of values.
pub fn parse_values(key: &str) -> Option<ValuesKey> {
    let (owner, name) = inside(key, "reports")?;
    let (first, rest) = name.strip_suffix(".bwr")?.split_once('-')?;
    let (last, node, number) = numbered(rest)?;
    let first = padded(first).filter(|first| *first <= last)?;
    Some(ValuesKey {
        owner,
        first,
        last,
        node,
        number,
    })
}

/// Returns the step, the node and the number in the name of a node's object.
fn numbered(name: &str) -> Option<(Step, String, u64)> {
    let (first, rest) = name.split_once('-')?;
    let (node, number) = rest.split_once('.')?;
    is_node(node).then_some(())?;
    Some((padded(first)?, node.to_owned(), plain(number)?))
}

/// Returns the owner of any key below an attempt's folder.
pub fn parse_owner(key: &str) -> Option<Owner> {
    let mut segments = key.strip_prefix(JOBS)?.splitn(3, '/');
    let (incarnation, attempt) = (segments.next()?, segments.next()?);
    segments.next()?;
    let (job, opened) = incarnation.split_once('@')?;
    Some(Owner {
        job: job.parse().ok()?,
        opened: plain(opened)?,
        attempt: plain(attempt)?,
    })
}

/// Returns the owner of a key in an attempt's folder `kind`, and the key's name there without its ending.
fn within<'k>(key: &'k str, kind: &str) -> Option<(Owner, &'k str)> {
    let (owner, name) = inside(key, kind)?;
    Some((owner, name.strip_suffix(".json")?))
}

/// Returns the owner of a key in an attempt's folder `kind`, and the key's name there.
fn inside<'k>(key: &'k str, kind: &str) -> Option<(Owner, &'k str)> {
    let (_, rest) = key.strip_prefix(JOBS)?.split_once('/')?;
    let (_, rest) = rest.split_once('/')?;
    let name = rest.strip_prefix(kind)?.strip_prefix('/')?;
    Some((parse_owner(key)?, name))
}

/// Returns whether this is a daemon's name in keys, which has no field separators.
fn is_node(node: &str) -> bool {
    let inside = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-');
    !node.is_empty() && node.bytes().all(inside)
}

/// Parses an unpadded number in its only valid form.
pub(super) fn plain(digits: &str) -> Option<u64> {
    let number: u64 = digits.parse().ok()?;
    (number < NUMBER_MAX && number.to_string() == digits).then_some(number)
}

fn padded(digits: &str) -> Option<u64> {
    let number: u64 = digits.parse().ok()?;
    (number < NUMBER_MAX && format!("{number:012}") == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner {
            job: "llm-7b.v2_x".parse().unwrap(),
            opened: 4,
            attempt: 3,
        }
    }

    #[test]
    fn keys_are_as_the_protocol_writes_them_and_give_their_numbers_back() {
        let o = owner();
        let one = mark(&o.job, 4, 3, 12, Some(7));
        assert_eq!(one, "jobs/llm-7b.v2_x@4/3/marks/000000000012-7.json");
        let beat = alive(&o.job, 4, 3, 7, "a1");
        assert_eq!(
            beat,
            "jobs/llm-7b.v2_x@4/3/progress/alive-000000000007-a1.json"
        );
        let parsed = parse_alive(&beat).unwrap();
        assert_eq!(
            (parsed.owner, parsed.beat, &*parsed.node),
            (owner(), 7, "a1")
        );
        assert_eq!(parse_progress(&beat), None);
        assert_eq!(parse_alive(&one), None);
        let parsed = parse_mark(&one).unwrap();
        assert_eq!((parsed.owner, parsed.step), (owner(), 12));
        assert_eq!(parsed.coordinate, Some(7));
        let all = mark(&o.job, 4, 3, 12, None);
        assert_eq!(all, "jobs/llm-7b.v2_x@4/3/marks/000000000012-all.json");
        assert_eq!(parse_mark(&all).unwrap().coordinate, None);
        let node = "0af3-1";
        let key = progress(&o.job, 4, 3, 12, (2, 5), node);
        assert_eq!(
            key,
            "jobs/llm-7b.v2_x@4/3/progress/000000000012-2_5-0af3-1.json"
        );
        let p = parse_progress(&key).unwrap();
        assert_eq!((p.owner, p.step, p.first, p.last), (owner(), 12, 2, 5));
        assert_eq!(p.node, node);
        let key = ledger(&o.job, 4, 3, 12, node, 9);
        assert_eq!(
            key,
            "jobs/llm-7b.v2_x@4/3/ledger/000000000012-0af3-1.9.json"
        );
        let l = parse_ledger(&key).unwrap();
        assert_eq!((l.owner, l.first, l.number), (owner(), 12, 9));
        assert_eq!(l.node, node);
        assert_eq!(parse_owner(&key), Some(owner()));
        let key = values(&o.job, 4, 3, (12, 300), node, 9);
        assert!(key.ends_with("@4/3/reports/000000000012-000000000300-0af3-1.9.bwr"));
        let v = parse_values(&key).unwrap();
        assert_eq!((v.owner, v.first, v.last, v.number), (owner(), 12, 300, 9));
        assert!(one.starts_with(&job_folder(&o.job, 4)));
    }

    #[test]
    fn steps_of_more_digits_are_read_as_well() {
        let o = owner();
        let key = mark(&o.job, 4, 3, NUMBER_MAX - 1, Some(0));
        assert_eq!(parse_mark(&key).unwrap().step, NUMBER_MAX - 1);
    }

    #[test]
    fn foreign_names_give_nothing() {
        for bad in [
            "jobs/llm@4/3/marks/12-7.json",
            "jobs/llm@4/3/marks/000000000012-07.json",
            "jobs/llm@4/3/marks/000000000012-+7.json",
            "jobs/llm@4/3/marks/000000000012-ALL.json",
            "jobs/llm@4/3/marks/000000000012-4294967296.json",
            "jobs/llm@4/3/marks/000000000012-7",
            "jobs/llm@4/3/marks/x/000000000012-7.json",
            "jobs/llm@04/3/marks/000000000012-7.json",
            "jobs/LLM@4/3/marks/000000000012-7.json",
            "jobs/llm/3/marks/000000000012-7.json",
            "jobs/llm@4/3/marks/9007199254740992-7.json",
            "x/llm@4/3/marks/000000000012-7.json",
            "jobs/",
        ] {
            assert_eq!(parse_mark(bad), None, "{bad}");
        }
        for bad in [
            "jobs/llm@4/3/progress/000000000012-5_2-n.json",
            "jobs/llm@4/3/progress/000000000012-2-n.json",
            "jobs/llm@4/3/progress/000000000012-2_5-.json",
            "jobs/llm@4/3/progress/000000000012-2_5-A.json",
            "jobs/llm@4/3/marks/000000000012-2_5-n.json",
        ] {
            assert_eq!(parse_progress(bad), None, "{bad}");
        }
        for bad in [
            "jobs/llm@4/3/ledger/000000000012-n.json",
            "jobs/llm@4/3/ledger/000000000012-.1.json",
            "jobs/llm@4/3/ledger/000000000012-n.01.json",
        ] {
            assert_eq!(parse_ledger(bad), None, "{bad}");
        }
        assert_eq!(parse_owner("jobs/llm@4/3"), None);
    }
}
