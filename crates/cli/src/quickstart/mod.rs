//! `batchweave quickstart`: from a folder of files to a stream, a configuration and a training script.
//!
//! `survey` lets the producer find and sample the files, `choose` decides the form of documents by their `fields` (or says in
//! `refusal` why none fits), `model` finds a tokenizer and a template, `shape` decides the size of a step, `run_file` and
//! `files` write the files, and `report` prints.

mod choose;
mod error;
mod fields;
mod files;
mod model;
mod refusal;
mod report;
mod run_file;
mod shape;
mod survey;

use std::path::{Path, PathBuf};

use batchweave_console::CliError;
use batchweave_console::context::Context;
use batchweave_core::keys;
use batchweave_daemon::Exit;
use batchweave_daemon::survey::Survey;
use batchweave_store::{ErrorKind, local_path, root_url};

use self::choose::{Choice, Content, choose};
pub(crate) use self::error::QuickstartError;
use self::files::{NewFile, SCRIPT, TEMPLATE, write_all};
use self::model::Model;
use self::report::Report;
use self::run_file::Plan;
use self::shape::Shape;
use crate::run::first_steps::{Outcome, first_steps};
use crate::show;

const EXAMPLES: &str = "\
Examples:
  batchweave quickstart corpus
  batchweave quickstart chats.jsonl --tokenizer model/tokenizer.json
  batchweave quickstart corpus --store s3://bucket/stream
  batchweave quickstart corpus --field body --no-run

Writes run.toml and train.py, and makes the first steps of the stream, which `batchweave run run.toml` continues.";

/// Steps that are made at once.
const FIRST_STEPS: u64 = 4;
/// The folder of the stream, beside run.toml.
const STREAM: &str = "batchweave-stream";
const RUN_FILE: &str = "run.toml";
const TRAIN_FILE: &str = "train.py";
const TEMPLATE_FILE: &str = "chat.jinja";
/// Files that a run writes beside them.
const LATER: [&str; 3] = ["run.logs", "train.checkpoint", "train.new"];

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QuickstartArgs {
    /// The folder of the data, or one file: JSONL, Parquet, Arrow, CSV, TSV, text or WebDataset tars
    #[arg(value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Folder of run.toml, train.py and, without --store, the stream
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    into: PathBuf,
    /// The field or column to train on, in place of the likeliest
    #[arg(long, value_name = "NAME")]
    field: Option<String>,
    /// A model's tokenizer.json [default: one near the data, or gpt2, which is part of the program]
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Write the files only
    #[arg(long)]
    no_run: bool,
    /// Replace run.toml and train.py
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(args: &QuickstartArgs, context: &Context) -> Result<Exit, CliError> {
    let store = args.store(context);
    if !args.into.is_dir() {
        return Err(QuickstartError::NoFolder(args.into.clone()).into());
    }
    survey::check_path(&args.data)?;
    if !args.no_run {
        check_empty(context, &store).await?;
    }
    let model = Model::find(args.tokenizer.as_deref(), &args.data)?;
    let survey =
        survey::survey(&args.data, &args.into, args.outputs(&store, model.as_ref())).await?;
    let choice = choose(&survey, args.field.as_deref())?;
    check_choice(&choice, model.as_ref())?;
    let plan = args.plan((&survey, &choice), model.as_ref(), (context, &store))?;
    let files = args.files(&plan);
    write_all(&files, args.force)?;
    let wrote = files.iter().map(|file| file.path.display().to_string());
    let mut report = Report::new(
        &args.data.display().to_string(),
        &survey,
        &plan,
        wrote.collect(),
    );
    context.out.part(|_| report.choice())?;
    if !args.no_run {
        let exit = make(
            &args.beside(RUN_FILE),
            (context, &store, plan.has_text()),
            &mut report,
        )
        .await?;
        if exit != Exit::Ok {
            return Ok(exit);
        }
    }
    context.done(&report, |report, _| report.outcome())
}

/// Makes the first steps and reads the first row; returns the code of a failure, which is printed.
async fn make(
    file: &Path,
    (context, store, has_text): (&Context, &str, bool),
    report: &mut Report,
) -> Result<Exit, CliError> {
    let shown = file.display();
    let made = match Box::pin(first_steps(file, context, FIRST_STEPS)).await? {
        Outcome::Made(made) => made,
        Outcome::Failed { lines, exit } => {
            for line in lines {
                eprintln!("{line}");
            }
            eprintln!(
                "{shown} is written: correct it, check it with `batchweave run {shown} --check`, and run it"
            );
            return Ok(exit);
        }
        Outcome::Stopped => {
            eprintln!("stopped; `batchweave run {shown}` continues");
            return Ok(Exit::Failure);
        }
    };
    if made.steps == 0 {
        return Err(QuickstartError::NoStep(file.to_owned()).into());
    }
    let row = if has_text {
        let mut log = at(context, store).log().await?;
        show::first_row(&mut log).await?
    } else {
        None
    };
    report.made(made, row);
    Ok(Exit::Ok)
}

/// Refuses token ids whose end is unknown.
fn check_choice(choice: &Choice, model: Option<&Model>) -> Result<(), QuickstartError> {
    match &choice.content {
        Content::Ids {
            field, end: None, ..
        } if model.is_none() => Err(QuickstartError::NoEnd(field.clone())),
        _ => Ok(()),
    }
}

/// Returns the context of the store at `url`.
fn at(context: &Context, url: &str) -> Context {
    let mut global = context.global().clone();
    global.store = Some(url.to_owned());
    Context::new(global)
}

/// Fails if the root of the stream holds one.
async fn check_empty(context: &Context, url: &str) -> Result<(), CliError> {
    let store = match at(context, url).store(false).await {
        Ok(store) => store,
        // A folder that the producer will create.
        Err(CliError::Store(why))
            if why.kind == ErrorKind::NoBucket && local_path(url).is_some() =>
        {
            return Ok(());
        }
        Err(why) => return Err(why),
    };
    match store.get(keys::STREAM, keys::bytes_max(keys::STREAM)).await {
        Ok(_) => Err(QuickstartError::HasStream(url.to_owned()).into()),
        Err(why) if why.is_not_found() => Ok(()),
        Err(why) => Err(why.into()),
    }
}

impl QuickstartArgs {
    /// Returns the root of the stream: the one of the command line, or a folder beside run.toml.
    fn store(&self, context: &Context) -> String {
        context.url().unwrap_or_else(|_| {
            let folder = self.beside(STREAM).display().to_string();
            if self.into.is_absolute() {
                folder
            } else {
                format!("./{folder}")
            }
        })
    }

    /// Returns the path of a file that is written beside the others.
    fn beside(&self, name: &str) -> PathBuf {
        let into = self.into.strip_prefix(".").unwrap_or(&self.into);
        into.join(name)
    }

    /// Returns the absolute paths that the survey leaves out: the files that this command and runs write, and those of the model.
    fn outputs(&self, store: &str, model: Option<&Model>) -> Vec<PathBuf> {
        let own = [RUN_FILE, TRAIN_FILE, TEMPLATE_FILE, STREAM]
            .into_iter()
            .chain(LATER);
        let stream = root_url(store).into_owned();
        let stream = local_path(&stream).map(PathBuf::from);
        let model = model.into_iter().flat_map(Model::files);
        let all = own.map(|name| self.beside(name)).chain(stream).chain(model);
        all.filter_map(|path| std::path::absolute(path).ok())
            .collect()
    }

    /// Returns everything that run.toml will say.
    fn plan<'a>(
        &self,
        (survey, choice): (&'a Survey, &'a Choice),
        model: Option<&'a Model>,
        (context, store): (&'a Context, &'a str),
    ) -> Result<Plan<'a>, QuickstartError> {
        let group = &survey.groups[choice.group];
        if group.paths.is_empty() {
            return Err(QuickstartError::TooManyPlaces(self.data.clone()));
        }
        let global = context.global();
        let keys = [("endpoint", &global.endpoint), ("region", &global.region)];
        let keys = keys.into_iter();
        Ok(Plan {
            store,
            store_keys: keys
                .filter_map(|(key, value)| Some((key, value.as_deref()?)))
                .collect(),
            group,
            shape: Shape::for_choice(choice, group),
            template: self.template(choice, model),
            choice,
            model,
        })
    }

    /// Returns the template of conversations: the model's, or a plain one that is written beside run.toml.
    fn template(&self, choice: &Choice, model: Option<&Model>) -> Option<String> {
        if !choice.content.has_template() {
            return None;
        }
        let own = model.and_then(|model| model.template.clone());
        let path = own.unwrap_or_else(|| self.beside(TEMPLATE_FILE));
        Some(path.display().to_string())
    }

    /// Returns the files to write.
    fn files(&self, plan: &Plan<'_>) -> Vec<NewFile> {
        let file = |name: &str, text: String| NewFile {
            path: self.beside(name),
            text,
        };
        let mut files = vec![
            file(RUN_FILE, plan.run_file()),
            file(TRAIN_FILE, SCRIPT.to_owned()),
        ];
        let own = plan.model.is_some_and(|model| model.template.is_some());
        if plan.template.is_some() && !own {
            files.push(file(TEMPLATE_FILE, TEMPLATE.to_owned()));
        }
        files
    }
}
