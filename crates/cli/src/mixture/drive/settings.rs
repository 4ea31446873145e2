//! The arguments of a driver.

use std::collections::BTreeMap;
use std::path::PathBuf;

use batchweave_console::CliError;
use batchweave_console::job::JobSelector;
use batchweave_core::drive::DriveSettings;
use batchweave_core::ids::Seq;
use batchweave_daemon::config::Period;

use super::super::weight;
use super::function::Function;

/// How shares are made from losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum RuleName {
    /// Online data mixing: EXP3 with the averaged loss as reward
    Odm,
    /// Towards losses in the ratio of --target
    Target,
    /// A function of your own, --function
    Function,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DriveArgs {
    /// The job whose ranks report losses of sources (its newest incarnation, or that of NAME@VERSION)
    #[arg(long, value_name = "NAME")]
    pub(super) job: JobSelector,
    /// How shares are made from losses
    #[arg(long, value_enum)]
    rule: RuleName,
    /// Steps of a decision
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    every: u64,
    /// The least share of a source with tokens, above 0
    #[arg(long, value_name = "SHARE", default_value_t = 0.01)]
    floor: f64,
    /// The largest share of a source
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    ceiling: f64,
    /// The most by which a share changes at once
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    step_bound: f64,
    /// First steps of the job that no decision uses
    #[arg(long, value_name = "STEPS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    warm_up: u64,
    /// With --rule odm: add rewards up, as EXP3 does, in place of averaging them
    #[arg(long)]
    sum: bool,
    /// With --rule target: the loss of a source; only the ratios count. Each source needs one
    #[arg(long = "target", value_name = "SOURCE=LOSS", value_parser = weight)]
    targets: Vec<(String, f64)>,
    /// With --rule function: a Python file and a function in it, as shares.py:weights
    #[arg(long, value_name = "FILE:NAME")]
    function: Option<String>,
    /// With --rule function: the Python to run it with
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Batches of each producer that still have the old weights, counted from its last commit
    #[arg(long, value_name = "BATCHES", default_value_t = 64)]
    pub(super) after: Seq,
    /// Time between two looks at the store
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = period)]
    pub(super) poll: Period,
    /// Make the change that is due, if any, and end
    #[arg(long)]
    pub(super) once: bool,
    /// Show what the rule would have done with the stored losses; writes nothing
    #[arg(long, conflicts_with = "once")]
    pub(super) dry_run: bool,
    /// With --dry-run: draw the shares into this SVG file
    #[arg(long, value_name = "FILE", requires = "dry_run")]
    pub(super) svg: Option<PathBuf>,
}

/// The checked settings of a driver.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) settings: DriveSettings,
    pub(super) function: Option<Function>,
    pub(super) after: Seq,
}

fn period(text: &str) -> Result<Period, String> {
    let period: Period = text.parse()?;
    if period.0.is_zero() {
        return Err("a time above 0".to_owned());
    }
    Ok(period)
}

impl DriveArgs {
    /// Checks what belongs together.
    pub(super) fn driver(&self) -> Result<Driver, CliError> {
        self.refuse_other_rules()?;
        let targets = self.targets()?;
        let function = match (&self.function, self.rule == RuleName::Function) {
            (Some(text), true) => Some(Function::parse(text, &self.python)?),
            (None, true) => {
                let text = "--rule function needs --function FILE:NAME";
                return Err(CliError::Usage(text.to_owned()));
            }
            _ => None,
        };
        let settings = DriveSettings {
            rule: match self.rule {
                RuleName::Odm => "odm",
                RuleName::Target => "target",
                RuleName::Function => "function",
            }
            .to_owned(),
            every: self.every,
            floor: self.floor,
            ceiling: self.ceiling,
            step_bound: self.step_bound,
            warm_up: self.warm_up,
            sum: self.sum,
            targets,
            function: self.function.clone(),
        };
        let checked = settings.bounds().check();
        checked.map_err(|why| CliError::Usage(why.to_string()))?;
        Ok(Driver {
            settings,
            function,
            after: self.after,
        })
    }

    /// Refuses options of another rule than the chosen one.
    fn refuse_other_rules(&self) -> Result<(), CliError> {
        let given = [
            (self.sum, RuleName::Odm, "--sum belongs to --rule odm"),
            (
                !self.targets.is_empty(),
                RuleName::Target,
                "--target belongs to --rule target",
            ),
            (
                self.function.is_some(),
                RuleName::Function,
                "--function belongs to --rule function",
            ),
        ];
        match given
            .into_iter()
            .find(|(given, of, _)| *given && self.rule != *of)
        {
            Some((.., why)) => Err(CliError::Usage(why.to_owned())),
            None => Ok(()),
        }
    }

    /// Returns the wanted loss of each source.
    fn targets(&self) -> Result<BTreeMap<String, f64>, CliError> {
        if self.rule == RuleName::Target && self.targets.is_empty() {
            let text = "--rule target needs --target SOURCE=LOSS for each source";
            return Err(CliError::Usage(text.to_owned()));
        }
        let mut targets = BTreeMap::new();
        for (name, loss) in &self.targets {
            if targets.insert(name.clone(), *loss).is_some() {
                return Err(CliError::Usage(format!("--target {name} is given twice")));
            }
        }
        if let Some((name, loss)) = targets.iter().find(|(_, t)| !(t.is_finite() && **t > 0.0)) {
            return Err(CliError::Usage(format!(
                "--target {name}={loss}: a loss is a finite number above 0"
            )));
        }
        Ok(targets)
    }
}
