//! A function of the user's, which makes weights from losses: run by Python in a process of its own, with JSON in and out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use batchweave_console::CliError;
use batchweave_core::drive::Why;
use batchweave_core::ids::Step;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Time for one answer.
const LIMIT: Duration = Duration::from_mins(1);
/// Bytes of an answer, and of what it prints as an error.
const BYTES_MAX: u64 = 1 << 20;

/// Loads the file, calls the function with the question, and writes its answer as JSON. What the function itself prints
/// goes to standard error.
const RUNNER: &str = "\
import importlib.util, json, os, sys
out = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)
spec = importlib.util.spec_from_file_location('batchweave_rule', sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
answer = getattr(module, sys.argv[2])(json.load(sys.stdin))
json.dump({str(name): float(weight) for name, weight in dict(answer).items()}, out, allow_nan=False)
out.close()
";

/// A function in a file.
#[derive(Debug)]
pub(super) struct Function {
    file: PathBuf,
    name: String,
    python: PathBuf,
}

/// The losses that the function gets.
#[derive(Debug, Serialize)]
pub(super) struct Question<'w> {
    /// The number of the change, from 1.
    change: u64,
    /// The steps of the decision, `to` excluded.
    from: Step,
    to: Step,
    /// The sources with tokens in these steps.
    sources: Vec<SourceQuestion<'w>>,
}

#[derive(Debug, Serialize)]
struct SourceQuestion<'w> {
    name: &'w str,
    loss: f64,
    tokens: f64,
    /// Its share by the weights in force.
    share: f64,
}

impl<'w> Question<'w> {
    pub(super) fn new(why: &'w Why) -> Self {
        let source = |one: &'w batchweave_core::drive::SourceWhy| {
            Some(SourceQuestion {
                name: &one.name,
                loss: one.sums().loss()?,
                tokens: one.weight,
                share: one.before,
            })
        };
        Self {
            change: why.change,
            from: why.from,
            to: why.to,
            sources: why.sources.iter().filter_map(source).collect(),
        }
    }
}

impl Function {
    /// Reads a file and a name, as `FILE:NAME`.
    pub(super) fn parse(text: &str, python: &Path) -> Result<Self, CliError> {
        let named = text.rsplit_once(':').filter(|(file, name)| {
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            !file.is_empty() && !name.is_empty() && name.chars().all(is_name)
        });
        let Some((file, name)) = named else {
            return Err(CliError::Usage(format!(
                "invalid --function {text:?}: expected a file and a function, for example shares.py:weights"
            )));
        };
        if !Path::new(file).is_file() {
            return Err(CliError::Input(format!("--function: {file} is not a file")));
        }
        Ok(Self {
            file: file.into(),
            name: name.to_owned(),
            python: python.to_owned(),
        })
    }

    /// Returns the weights by source.
    pub(super) async fn ask(
        &self,
        question: &Question<'_>,
    ) -> Result<BTreeMap<String, f64>, CliError> {
        let answer = tokio::time::timeout(LIMIT, self.answer(question)).await;
        let answer = answer.map_err(|_| {
            self.failed(format!("gave no answer within {} seconds", LIMIT.as_secs()))
        })??;
        serde_json::from_slice(&answer)
            .map_err(|why| self.failed(format!("gave no weights: {why}")))
    }

    async fn answer(&self, question: &Question<'_>) -> Result<Vec<u8>, CliError> {
        let io = |why: std::io::Error| self.failed(format!("cannot run: {why}"));
        let mut command = Command::new(&self.python);
        command.args(["-c", RUNNER]).arg(&self.file).arg(&self.name);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|why| {
            self.failed(format!(
                "cannot start {}: {why}; name another one with --python",
                self.python.display()
            ))
        })?;
        let question = serde_json::to_vec(question).unwrap_or_default();
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // A function that ends without reading says why itself.
                let _ = stdin.write_all(&question).await;
            }
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let read_out = async {
            match stdout {
                Some(stdout) => stdout.take(BYTES_MAX).read_to_end(&mut out).await,
                None => Ok(0),
            }
        };
        let read_err = async {
            match stderr {
                Some(stderr) => stderr.take(BYTES_MAX).read_to_end(&mut err).await,
                None => Ok(0),
            }
        };
        let ((), read_out, read_err) = tokio::join!(write, read_out, read_err);
        read_out.and(read_err).map_err(io)?;
        let status = child.wait().await.map_err(io)?;
        if status.success() {
            return Ok(out);
        }
        let err = String::from_utf8_lossy(&err);
        let last = err.lines().rev().find(|line| !line.trim().is_empty());
        Err(self.failed(format!("failed: {}", last.unwrap_or("without a message"))))
    }

    fn failed(&self, why: String) -> CliError {
        CliError::Refused(format!(
            "--function {}:{} {why}; nothing is changed",
            self.file.display(),
            self.name
        ))
    }
}
