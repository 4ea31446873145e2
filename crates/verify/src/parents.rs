//! The part of a run that the streams before a fork have: each is proved from its own log and ledgers, up to the step at
//! which the fork continued.

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_console::output::{Style, range};
use batchweave_core::ids::{Step, StreamId};
use batchweave_core::manifest::entry::Inherited;
use batchweave_core::stream::ParentStream;
use serde::Serialize;

use crate::fold::Folding;
use crate::job;
use crate::proof::Proven;
use crate::report::RunReport;

/// Streams before a fork that are read; a chain of more is an error in some `stream.json`.
const MOST: usize = 64;

/// The part of a run that one parent stream has.
#[derive(Debug, Serialize)]
pub(crate) struct ParentReport {
    root: String,
    stream: StreamId,
    /// The step at which the fork continued.
    to: Step,
    /// The proof; `None` where there is none.
    pub(crate) run: Option<RunReport>,
    /// Why there is none.
    pub(crate) not_proved: Option<String>,
}

/// Proves the parts of a run that the ancestors of its stream have, the nearest first.
pub(crate) async fn prove(
    folding: &Folding,
    inherited: Option<Inherited>,
    trained: bool,
    context: &Context,
) -> Result<Vec<ParentReport>, CliError> {
    let mut all = Vec::new();
    let mut parent = folding.manifest().stream().parent.clone();
    let mut inherited = inherited;
    while let Some(stream) = parent.take() {
        let mut report = ParentReport::new(&stream);
        if all.len() == MOST {
            report.not_proved = Some(format!("only {MOST} streams before a fork are read"));
        } else if let Some(from) = inherited {
            match of_parent(&stream, &from, trained, context).await {
                Ok((proven, before)) => {
                    (inherited, parent) = (proven.inherited, before);
                    report.run = Some(proven.report);
                }
                // What is wrong in it is the result; the rest is a log that is gone or closed to this command.
                Err(why @ CliError::Unsound(_)) => return Err(why),
                Err(why) => report.not_proved = Some(why.to_string()),
            }
        } else {
            report.not_proved = Some(
                "the attempt that began behind it states no checkpoint of it: it was started with start=".to_owned(),
            );
        }
        all.push(report);
    }
    Ok(all)
}

async fn of_parent(
    parent: &ParentStream,
    inherited: &Inherited,
    trained: bool,
    context: &Context,
) -> Result<(Proven, Option<ParentStream>), CliError> {
    let mut global = context.global().clone();
    global.store = Some(parent.root.clone());
    let store = Context::new(global).store(false).await?;
    let folding = job::fold(&store).await?;
    let stream = folding.manifest().stream();
    if stream.stream_id != parent.stream {
        return Err(CliError::Absent(format!(
            "{} has another stream now, {}",
            parent.root, stream.stream_id
        )));
    }
    let before = stream.parent.clone();
    let proven = job::prove_inherited(&store, &folding, inherited, trained).await?;
    Ok((proven, before))
}

impl ParentReport {
    fn new(parent: &ParentStream) -> Self {
        Self {
            root: parent.root.clone(),
            stream: parent.stream,
            to: parent.step,
            run: None,
            not_proved: None,
        }
    }

    pub(crate) fn text(&self, style: Style) -> String {
        let head = format!("\n\nparent stream {}, steps below {}\n", self.root, self.to);
        let rest = match (&self.run, &self.not_proved) {
            (Some(run), _) => run.text(style),
            (None, why) => style.red(&format!(
                "NOT PROVED: {}",
                why.as_deref().unwrap_or_default()
            )),
        };
        head + &rest
    }

    /// Returns the sentence about a part without a proof.
    pub(crate) fn fault(&self) -> Option<String> {
        let why = self.not_proved.as_ref()?;
        let (root, steps) = (&self.root, range(0, self.to));
        Some(format!(
            "not proved: steps {steps} are of the parent stream {root}: {why}"
        ))
    }
}
