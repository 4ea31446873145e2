//! The permissions of these credentials, by prefix, checked without creating or deleting an object in use.
//!
//! - *put*: a create is sent that the store refuses for its checksum, or an upload is begun and aborted, which needs the
//!   permission and never creates an object; for a folder, access rights are read.
//! - *get*: a missing key is read.
//! - *delete*: a missing key is deleted. On a bucket with versions that would leave a delete marker, so
//!   below `log/` it is done only where versioning is known to be off, and `stream.json` is never deleted.

use batchweave_core::keys;
use batchweave_store::{ErrorKind, Permission, StoreError, Versioning, found};

use super::Target;
use super::finding::{Finding, Level};

/// One prefix and the permissions that a stream needs there.
struct Area {
    name: &'static str,
    verbs: &'static [&'static str],
    /// The programs that need access, and their reason.
    why: &'static str,
}

/// Areas in which a stream can't do without puts; anywhere else their lack is a warning.
const PUT_NEEDED: [&str; 2] = ["log/", "data/"];
const PUT_GET: &[&str] = &["put", "get"];
const ALL: &[&str] = &["put", "get", "list", "delete"];

const fn area(name: &'static str, verbs: &'static [&'static str], why: &'static str) -> Area {
    Area { name, verbs, why }
}

const AREAS: [Area; 8] = [
    area(
        "log/",
        PUT_GET,
        "producers commit there, consumers open attempts there, commands and reclamation write \
         there, all programs read it",
    ),
    area(
        "data/",
        ALL,
        "producers upload there, consumers read it, reclamation lists and deletes",
    ),
    area(
        "intents/",
        ALL,
        "producers announce commits there when many commit at once, and delete them again; \
         reclamation deletes what is left",
    ),
    area(
        "snapshots/",
        ALL,
        "readers of the log write them, to spare others reading it from its beginning, and \
         delete old ones, as reclamation does",
    ),
    area(
        "index/",
        ALL,
        "readers of the log write it, so that old steps are found; reclamation deletes the \
         part of reclaimed steps, and producers old bundles of records",
    ),
    area(
        "jobs/",
        ALL,
        "consumers publish progress, checkpoint marks and ledgers there and delete older \
         progress, producers and reclamation list it, reclamation deletes",
    ),
    area(
        "repairs/",
        PUT_GET,
        "`batchweave repair` writes there, and readers of an unreadable record look there",
    ),
    area(
        "stream.json",
        PUT_GET,
        "the creator of the stream writes it, all programs read it",
    ),
];

pub(super) async fn check(
    target: &Target<'_>,
    versioning: Option<&Result<Versioning, StoreError>>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for area in &AREAS {
        findings.push(examine(target, area).await);
    }
    if let (Some(versioning), false) = (versioning, target.args.read_only) {
        findings.push(log_deletes(target, versioning).await);
    }
    findings
}

/// Tries what a stream needs below one prefix, as far as --read-only permits.
async fn examine(target: &Target<'_>, area: &Area) -> Finding {
    let store = target.store();
    let key = unused_key(area.name, target.random);
    let (mut allowed, mut refused, mut unclear) = (Vec::new(), None, None);
    for &verb in area.verbs {
        let answer = match (verb, store.inspect()) {
            ("put" | "delete", _) if target.args.read_only => continue,
            ("put", None) => continue,
            ("put", Some(inspect)) => inspect.may_create(&key).await,
            ("get", _) => found(store.get(&key, keys::bytes_max(&key)).await).map(drop),
            ("list", _) => store.list(area.name, None).await.map(drop),
            // The right to delete a file is that to write to its folder.
            (_, Some(folder)) if folder.bucket().is_none() => folder.may_create(&key).await,
            _ => store.delete(&key).await,
        };
        match answer {
            Ok(()) => allowed.push(verb),
            Err(error) if error.kind == ErrorKind::Denied => {
                _ = refused.get_or_insert((verb, error))
            }
            Err(error) => _ = unclear.get_or_insert((verb, error)),
        }
    }
    let verbs = allowed.join(", ");
    let rest = match verbs.as_str() {
        "" => String::new(),
        some => format!("; {some} allowed"),
    };
    match (refused, unclear) {
        (Some((verb, error)), _) => refusal(target, area, verb, &error, &rest),
        (None, Some((verb, error))) => {
            let detail = format!("{verb} not answered: {}{rest}", error.detail);
            Finding::unchecked(area.name, detail)
        }
        (None, None) => Finding::ok(area.name, verbs),
    }
}

/// Returns the finding for the first verb that the store refused; `rest` names the others.
fn refusal(
    target: &Target<'_>,
    area: &Area,
    verb: &str,
    error: &StoreError,
    rest: &str,
) -> Finding {
    let (name, why) = (area.name, area.why);
    let remedy = if target.bucket().is_some() {
        let any = if name.ends_with('/') { "*" } else { "" };
        format!(
            "grant {} on {name}{any}: {why}",
            target.grant(permission(verb))
        )
    } else {
        format!("give this user access to {name}: {why}")
    };
    let needed = verb == "get" || (verb == "put" && PUT_NEEDED.contains(&name));
    Finding {
        verdict: if needed { Level::Fail } else { Level::Warn },
        detail: format!("{verb} refused: {}{rest}", error.detail),
        ..Finding::failed(name, error)
    }
    .with_remedy(remedy)
}

/// Returns a key that no stream uses; for `stream.json` the key itself, which is read but never deleted.
fn unused_key(area: &str, random: u64) -> String {
    if area.ends_with('/') {
        format!("{area}doctor-{random:016x}")
    } else {
        area.to_owned()
    }
}

fn permission(verb: &str) -> Permission {
    match verb {
        "put" => Permission::Create,
        "get" => Permission::Read,
        "list" => Permission::List,
        _ => Permission::Delete,
    }
}

/// Records are never deleted: the version of a deleted one could be written a second time.
async fn log_deletes(target: &Target<'_>, versioning: &Result<Versioning, StoreError>) -> Finding {
    let name = "log/ delete";
    let remedy = &format!(
        "deny {} on log/* and stream.json to everybody: a deleted record could be written a second time",
        target.grant(Permission::Delete)
    );
    if !matches!(versioning, Ok(Versioning::Off)) {
        let why = "not tried: with versions it would leave a delete marker";
        return Finding::unchecked(name, why).with_remedy(remedy);
    }
    let key = unused_key("log/", target.random);
    match target.store().delete(&key).await {
        Err(error) if error.kind == ErrorKind::Denied => {
            Finding::ok(name, "refused, as it should be (stream.json is not tried)")
        }
        Err(error) => Finding::unchecked(name, error.detail),
        Ok(()) => {
            let detail = "these credentials may delete records of the log; no stream needs that";
            Finding::warn(name, detail, remedy)
        }
    }
}
