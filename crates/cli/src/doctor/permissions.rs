//! The permissions of these credentials, by prefix, checked without creating or deleting an object in use.
//!
//! - *put*: an S3 multipart upload is begun and aborted, which needs the permission of a put and never
//!   creates an object; for a folder, access rights are read.
//! - *get*: a missing key is read.
//! - *delete*: a missing key is deleted. On a bucket with versions that would leave a delete marker, so
//!   below `log/` it is done only where versioning is known to be off, and `stream.json` is never deleted.

use batchweave_core::keys;
use batchweave_store::{ErrorKind, Store, StoreError, Versioning};

use super::Target;
use super::finding::{Finding, Group, Level};

const GROUP: Group = Group::Permissions;

/// One prefix and the permissions that a stream needs there.
struct Area {
    name: &'static str,
    /// Whether a stream needs puts; otherwise their lack is a warning.
    put_needed: bool,
    list: bool,
    delete: bool,
    /// The programs that need access, and their reason.
    why: &'static str,
}

const AREAS: [Area; 8] = [
    Area {
        name: "log/",
        put_needed: true,
        list: false,
        delete: false,
        why: "producers commit there, consumers open attempts there, commands and reclamation write \
              there, all programs read it",
    },
    Area {
        name: "data/",
        put_needed: true,
        list: true,
        delete: true,
        why: "producers upload there, consumers read it, reclamation lists and deletes",
    },
    Area {
        name: "intents/",
        put_needed: false,
        list: true,
        delete: true,
        why: "producers announce commits there when many commit at once, and delete them again; \
              reclamation deletes what is left",
    },
    Area {
        name: "snapshots/",
        put_needed: false,
        list: true,
        delete: true,
        why: "readers of the log write them, to spare others reading it from its beginning, and \
              delete old ones, as reclamation does",
    },
    Area {
        name: "index/",
        put_needed: false,
        list: true,
        delete: true,
        why: "readers of the log write it, so that old steps are found; reclamation deletes the \
              part of reclaimed steps",
    },
    Area {
        name: "jobs/",
        put_needed: false,
        list: true,
        delete: true,
        why: "consumers publish progress, checkpoint marks and ledgers there and delete older \
              progress, producers and reclamation list it, reclamation deletes",
    },
    Area {
        name: "repairs/",
        put_needed: false,
        list: false,
        delete: false,
        why: "`batchweave repair` writes there, and readers of an unreadable record look there",
    },
    Area {
        name: "stream.json",
        put_needed: false,
        list: false,
        delete: false,
        why: "the creator of the stream writes it, all programs read it",
    },
];

enum Answer {
    Allowed,
    Refused(StoreError),
    /// The check failed for another reason than a refusal.
    Unclear(StoreError),
}

impl Answer {
    fn from_result(outcome: Result<(), StoreError>) -> Self {
        match outcome {
            Ok(()) => Self::Allowed,
            Err(error) if error.kind == ErrorKind::Denied => Self::Refused(error),
            Err(error) => Self::Unclear(error),
        }
    }
}

pub(super) async fn check(
    target: &Target<'_>,
    versioning: Option<&Result<Versioning, StoreError>>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for area in &AREAS {
        findings.push(area_of(target, area).await);
    }
    if let (Some(versioning), false) = (versioning, target.args.read_only) {
        findings.push(log_deletes(target, versioning).await);
    }
    findings
}

/// Tries what a stream needs below one prefix, as far as --read-only permits.
async fn area_of(target: &Target<'_>, area: &Area) -> Finding {
    let (store, writes) = (target.store(), !target.args.read_only);
    let key = unused_key(area.name, target.random);
    let mut asked: Vec<(&str, Answer)> = Vec::new();
    if let (Some(inspect), true) = (store.inspect(), writes) {
        asked.push(("put", Answer::from_result(inspect.may_create(&key).await)));
    }
    let read = store.get(&key, keys::bytes_max(&key)).await;
    asked.push(("get", Answer::from_result(absent(read.map(drop)))));
    if area.list {
        let listed = store.list(area.name, None).await;
        asked.push(("list", Answer::from_result(listed.map(drop))));
    }
    if area.delete && writes {
        asked.push(("delete", Answer::from_result(may_delete(store, &key).await)));
    }
    judge(area, target.bucket().is_some(), asked)
}

/// Returns a key that no stream uses; for `stream.json` the key itself, which is read but never deleted.
fn unused_key(area: &str, random: u64) -> String {
    if area.ends_with('/') {
        format!("{area}doctor-{random:016x}")
    } else {
        area.to_owned()
    }
}

/// Counts a missing key as an answer: the read was permitted.
fn absent(outcome: Result<(), StoreError>) -> Result<(), StoreError> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome,
    }
}

/// Checks the permission to delete; for a file that is the right to write to its folder.
async fn may_delete(store: &dyn Store, key: &str) -> Result<(), StoreError> {
    match store.inspect() {
        Some(inspect) if inspect.bucket().is_none() => inspect.may_create(key).await,
        _ => store.delete(key).await,
    }
}

fn judge(area: &Area, bucket: bool, asked: Vec<(&str, Answer)>) -> Finding {
    let allowed: Vec<&str> = asked
        .iter()
        .filter(|(_, answer)| matches!(answer, Answer::Allowed))
        .map(|(verb, _)| *verb)
        .collect();
    let allowed = allowed.join(", ");
    let first = |refused: bool| {
        asked.iter().find_map(|(verb, answer)| match answer {
            Answer::Refused(error) if refused => Some((*verb, error)),
            Answer::Unclear(error) if !refused => Some((*verb, error)),
            _ => None,
        })
    };
    let refused = first(true);
    let Some((verb, error)) = refused.or_else(|| first(false)) else {
        return Finding::ok(GROUP, area.name, allowed);
    };
    let rest = match allowed.as_str() {
        "" => String::new(),
        some => format!("; {some} allowed"),
    };
    if refused.is_none() {
        let detail = format!("{verb} not answered: {}{rest}", error.detail);
        return Finding::unchecked(GROUP, area.name, detail);
    }
    let detail = format!("{verb} refused: {}{rest}", error.detail);
    let remedy = if bucket {
        format!("grant {} on {}: {}", grant(verb), pattern(area), area.why)
    } else {
        format!("give this user access to {}: {}", area.name, area.why)
    };
    let finding = Finding::failed(GROUP, area.name, error);
    let needed = verb == "get" || (verb == "put" && area.put_needed);
    Finding {
        verdict: if needed { Level::Fail } else { Level::Warn },
        detail,
        ..finding
    }
    .with_remedy(remedy)
}

fn grant(verb: &str) -> &'static str {
    match verb {
        "put" => "s3:PutObject",
        "get" => "s3:GetObject",
        "list" => "s3:ListBucket",
        _ => "s3:DeleteObject",
    }
}

fn pattern(area: &Area) -> String {
    match area.name.strip_suffix('/') {
        Some(folder) => format!("{folder}/*"),
        None => area.name.to_owned(),
    }
}

/// Records are never deleted: the version of a deleted one could be written a second time.
async fn log_deletes(target: &Target<'_>, versioning: &Result<Versioning, StoreError>) -> Finding {
    let name = "log/ delete";
    let remedy = "deny s3:DeleteObject and s3:DeleteObjectVersion on log/* and stream.json to \
                  everybody: a deleted record could be written a second time";
    if !matches!(versioning, Ok(Versioning::Off)) {
        let why = "not tried: with versions it would leave a delete marker";
        return Finding::unchecked(GROUP, name, why).with_remedy(remedy);
    }
    let key = unused_key("log/", target.random);
    match Answer::from_result(target.store().delete(&key).await) {
        Answer::Refused(_) => {
            let detail = "refused, as it should be (stream.json is not tried)";
            Finding::ok(GROUP, name, detail)
        }
        Answer::Allowed => {
            let detail = "these credentials may delete records of the log; no stream needs that";
            Finding::warn(GROUP, name, detail, remedy)
        }
        Answer::Unclear(error) => Finding::unchecked(GROUP, name, error.detail),
    }
}
