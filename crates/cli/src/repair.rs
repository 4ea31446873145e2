//! `batchweave repair`: shows what can be done about an unreadable record, and does it.

use std::sync::Arc;

use batchweave_console::CliError;
use batchweave_console::context::{self, Context};
use batchweave_console::output::{Style, bytes, count, fields};
use batchweave_console::stream::Head;
use batchweave_core::ids::{Hash, Version};
use batchweave_core::keys;
use batchweave_core::limits::REASON_BYTES_MAX;
use batchweave_core::manifest::FoldError;
use batchweave_daemon::Exit;
use batchweave_log::LogOptions;
use batchweave_log::repair::{self, Damage, Remedy, Repaired};
use batchweave_store::Store;
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  batchweave repair --store s3://bucket/stream       show what can be done
  batchweave repair --apply --reason \"truncated by a proxy\"

A record that can't be read, or that does not continue the records before it, stops the stream for
everybody. Restoring the object is always better: what it committed is lost otherwise, and its writers
commit it again. It is made void by an object repairs/VERSION.json that names the hash of its bytes: one
that can't be read only while it is the newest, one of a faulty writer together with all that the same
writer has put after it.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RepairArgs {
    /// Make the record void, for all readers and permanently
    #[arg(long, requires = "reason")]
    apply: bool,
    /// The reason; it is stored in the repair
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct RepairReport {
    root: String,
    /// Whether the log is readable up to its head.
    readable: bool,
    /// The newest version and number of steps, when the log is readable.
    head: Option<Head>,
    damage: Option<DamageReport>,
    /// `none`, `possible`, `done`, `done before` or `refused`.
    repair: &'static str,
    /// Versions that this command made void.
    voided: Vec<Version>,
    /// Advice for what to do.
    advice: Option<String>,
}

#[derive(Debug, Serialize)]
struct DamageReport {
    version: Version,
    key: String,
    reason: String,
    bytes: u64,
    hash: Hash,
}

pub(crate) async fn run(args: &RepairArgs, context: &Context) -> Result<Exit, CliError> {
    let reason = args.reason.as_deref().unwrap_or_default();
    if reason.len() > REASON_BYTES_MAX {
        return Err(CliError::Usage(format!(
            "--reason has more than {REASON_BYTES_MAX} bytes"
        )));
    }
    let store = context.store(false).await?;
    let options = context::read_only();
    let root = store.root().to_owned();
    let mut damage = repair::damage(&store, &options).await?;
    let outcome = apply(&store, &options, args.apply.then_some(reason), &mut damage).await?;
    let Outcome {
        repair,
        remedy,
        voided,
    } = outcome;
    let log = match remedy {
        None => Some(context::open_log(store).await?),
        Some(_) => None,
    };
    let report = RepairReport {
        root,
        readable: log.is_some(),
        head: log.as_ref().map(|log| Head::from_manifest(log.manifest())),
        advice: remedy
            .as_ref()
            .zip(damage.as_ref())
            .map(|(remedy, damage)| advice(remedy, damage)),
        damage: damage.map(DamageReport::from),
        repair,
        voided,
    };
    context.out.report(&report, render)?;
    Ok(if report.readable {
        Exit::Ok
    } else {
        Exit::Protocol
    })
}

/// The result of the command, with the remedy for the damage that is left.
struct Outcome {
    repair: &'static str,
    remedy: Option<Remedy>,
    voided: Vec<Version>,
}

/// Repairs one record after the other, if there is a reason, while the next damage is by the same faulty writer.
async fn apply(
    store: &Arc<dyn Store>,
    options: &LogOptions,
    reason: Option<&str>,
    damage: &mut Option<Damage>,
) -> Result<Outcome, CliError> {
    let mut voided = Vec::new();
    let (repair, remedy) = loop {
        let (done, remedy) = repair_one(store, options, reason, damage.as_ref()).await?;
        let Some(found) = damage.as_ref().filter(|_| done.starts_with("done")) else {
            break (done, remedy);
        };
        if done == "done" {
            voided.push(found.version);
        }
        let Some(next) = repair::damage(store, options).await? else {
            break (done, None);
        };
        let writer = found.reason.writer().map(str::to_owned);
        let next = damage.insert(next);
        // Further damage by the same faulty writer is repaired too.
        if writer.is_none() || next.reason.writer() != writer.as_deref() {
            break ("possible", Some(next.remedy.clone()));
        }
    };
    Ok(Outcome {
        repair,
        remedy,
        voided,
    })
}

/// Repairs one record, if there is a reason. Returns what was done, and the remedy for damage that is left.
async fn repair_one(
    store: &Arc<dyn Store>,
    options: &LogOptions,
    reason: Option<&str>,
    damage: Option<&Damage>,
) -> Result<(&'static str, Option<Remedy>), CliError> {
    let Some(damage) = damage else {
        return Ok(("none", None));
    };
    if damage.remedy != Remedy::Repair {
        return Ok(("refused", Some(damage.remedy.clone())));
    }
    let Some(reason) = reason else {
        return Ok(("possible", Some(Remedy::Repair)));
    };
    Ok(
        match repair::repair(store, damage, reason, options).await? {
            Repaired::Now => ("done", None),
            Repaired::Before { .. } => ("done before", None),
            Repaired::Refused(remedy) => ("refused", Some(remedy)),
        },
    )
}

impl From<Damage> for DamageReport {
    fn from(damage: Damage) -> Self {
        Self {
            version: damage.version,
            key: damage.key,
            reason: fault(&damage.reason),
            bytes: damage.bytes,
            hash: damage.bad,
        }
    }
}

/// Describes the fault of a record without advice: `advice` gives that.
fn fault(reason: &FoldError) -> String {
    match reason {
        FoldError::Unreadable { reason, .. } => reason.to_string(),
        FoldError::Unlinked {
            named,
            held,
            writer,
            ..
        } => format!(
            "written by {writer}, it continues an object with hash {named}; the one before it has {held}"
        ),
        FoldError::OtherView { writer, .. } => format!(
            "written by {writer}, which understood the records before it otherwise than this program"
        ),
        other => other.to_string(),
    }
}

fn advice(remedy: &Remedy, damage: &Damage) -> String {
    let key = &damage.key;
    let restore = format!("restore {key} from a backup or bucket version");
    match remedy {
        Remedy::Repair if matches!(damage.reason, FoldError::OtherView { .. }) => format!(
            "find out which program is right: start this one and the writer again, on the same version of \
             BatchWeave; if the writer was wrong, `batchweave repair --apply --reason TEXT` makes version \
             {} void, and what the same writer has put after it: its producers commit it again",
            damage.version
        ),
        Remedy::RestoreBefore { before, named } => format!(
            "no repair: other writers have gone on from {key}, so {before} was altered after it was \
             written; restore the bytes with the hash {named} from a backup or bucket version"
        ),
        Remedy::Repair => format!(
            "{restore}; if there is none, `batchweave repair --apply --reason TEXT` makes version {} \
             void: what it committed is lost with it, and its writers commit it again",
            damage.version
        ),
        Remedy::Upgrade => format!(
            "no repair: {key} has a format that is newer than this program, and newer programs read \
             it; upgrade this one"
        ),
        Remedy::UpgradeToo { later } => format!(
            "no repair: {later} goes on from these very bytes, so its writer could read them; \
             upgrade this program"
        ),
        Remedy::Restore {
            later,
            held: Some(held),
        } => format!(
            "no repair: {later} goes on from bytes with the hash {held}, so {key} was altered after \
             it was written; {restore}"
        ),
        Remedy::Restore { later, held: None } => format!(
            "no repair: {later} exists, so others have read what was here, and it can't be read \
             either; restore both from a backup or bucket version"
        ),
        Remedy::Unsteady => format!(
            "no repair: {key} reads differently each time; find what changes it, \
             or its bytes on the way here, and run this again"
        ),
        Remedy::RepairedOther { repair, held } => format!(
            "no repair: {repair} has made bytes with the hash {held} void, and {key} was altered since; \
             restore those bytes"
        ),
    }
}

fn render(report: &RepairReport, style: Style) -> String {
    let Some(found) = &report.damage else {
        return format!("{}{}", style.green("nothing to repair"), head(report));
    };
    let mut rows = vec![
        ("root", report.root.clone()),
        ("record", found.key.clone()),
        ("bytes", bytes(found.bytes)),
        ("hash", found.hash.to_string()),
        ("fault", found.reason.clone()),
    ];
    if let Some(advice) = &report.advice {
        rows.push(("advice", style.yellow(advice)));
    }
    let mut text = fields(&rows);
    if report.readable {
        let (version, key) = (found.version, keys::repair(found.version));
        let done = format!("{}: version {version} is void, by {key}", report.repair);
        text = text + &style.green(&done) + &head(report);
    }
    text
}

fn head(report: &RepairReport) -> String {
    report.head.as_ref().map_or(String::new(), |head| {
        let newest = head.newest();
        let steps = count(head.steps, "step");
        let root = &report.root;
        format!("\nthe log of {root} can be read: newest version {newest}, {steps}")
    })
}
