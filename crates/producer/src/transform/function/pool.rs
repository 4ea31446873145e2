//! The worker processes: started as they are needed, lent to one thread at a time, and replaced when they end.

use std::collections::VecDeque;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use batchweave_daemon::Exit;

use super::message::{Answer, ArrayForm, Document, Setup, Wanted};
use super::output::Limiter;
use super::process::{Death, Launch, Process, StartFailure};
use super::watch::{WatchList, watch};
use crate::config::ProducerConfig;
use crate::packing::ArraySpec;

/// Most starts of a process, because it may be ended from outside.
const TRIES: u32 = 3;
/// Bytes of an answer beside the document: names and numbers.
const ANSWER_OVERHEAD: u64 = 1 << 20;

/// The reason why the function can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// Python can't be started.
    #[error(
        "transform.python: can't start {python:?}: {why}; name the Python that has the function's packages"
    )]
    Python { python: String, why: std::io::Error },
    /// The function can't be loaded.
    #[error(
        "transform.function: {function:?} can't be loaded: {detail}; correct it, or name the folder of its module in transform.path or its Python in transform.python"
    )]
    Load { function: String, detail: String },
    /// The process ended while it loaded the function.
    #[error("transform.function: {function:?} {detail}, while it was loaded")]
    Ended { function: String, detail: String },
}

impl FunctionError {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Python { .. } | Self::Load { .. } => Exit::Config,
            Self::Ended { .. } => Exit::Failure,
        }
    }
}

/// The answers to some documents.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) answers: Vec<Answer>,
    /// Processes that ended meanwhile.
    pub(super) deaths: u64,
}

pub(super) struct Pool {
    launch: Launch,
    function: String,
    most: usize,
    lent: Mutex<Lent>,
    returned: Condvar,
}

#[derive(Default)]
struct Lent {
    idle: VecDeque<Process>,
    /// Processes that are lent or idle.
    running: usize,
}

/// Returns the first message to a process, in JSON.
fn setup(config: &ProducerConfig, arrays: &[ArraySpec]) -> Vec<u8> {
    let setup = Setup {
        function: &config.transform.function,
        path: &config.transform.path,
        limit: config.source.max_document_bytes.bytes(),
        arrays: arrays.iter().map(ArrayForm::new).collect(),
    };
    // Strings and numbers always become JSON.
    serde_json::to_vec(&setup).unwrap_or_default()
}

impl Pool {
    /// Starts the first process.
    pub(super) fn start(
        config: &ProducerConfig,
        arrays: &[ArraySpec],
    ) -> Result<Self, FunctionError> {
        let table = &config.transform;
        let limit = config.source.max_document_bytes.bytes();
        let (starts, requests) = sync_channel(0);
        let launch = Launch {
            starts,
            python: table.python.clone(),
            setup: setup(config, arrays),
            timeout: table.timeout.0,
            limit: limit.saturating_add(ANSWER_OVERHEAD),
            processes: Arc::new(WatchList::default()),
            limiter: Arc::new(Limiter::default()),
        };
        let list = launch.processes.clone();
        let memory = table.memory.bytes();
        let watcher = std::thread::Builder::new()
            .name("function-watch".to_owned())
            .spawn(move || watch(&list, &requests, memory));
        let pool = Self {
            function: table.function.clone(),
            most: config.function_workers(),
            lent: Mutex::default(),
            returned: Condvar::new(),
            launch,
        };
        watcher.map_err(|why| pool.explain(StartFailure::Spawn(why)))?;
        let first = pool.start_first().map_err(|why| pool.explain(why))?;
        let mut lent = pool.lent();
        (lent.running, lent.idle) = (1, [first].into());
        drop(lent);
        Ok(pool)
    }

    /// Starts a process; one that is ended from outside is replaced.
    fn start_first(&self) -> Result<Process, StartFailure> {
        let mut tries = 1;
        loop {
            match Process::start(&self.launch) {
                Err(StartFailure::Ended(death)) if tries < TRIES.min(death.tries) => {
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    fn explain(&self, why: StartFailure) -> FunctionError {
        let function = self.function.clone();
        match why {
            StartFailure::Spawn(why) => FunctionError::Python {
                python: self.launch.python.clone(),
                why,
            },
            StartFailure::Load(detail) => FunctionError::Load { function, detail },
            StartFailure::Ended(death) => FunctionError::Ended {
                function,
                detail: death.detail,
            },
        }
    }

    /// Applies the function to documents; their answers have the same order. Waits while all processes are lent.
    pub(super) fn apply(&self, wanted: &Wanted, documents: &[Document]) -> Done {
        let mut done = Done::default();
        let mut tries = 0;
        while done.answers.len() < documents.len() {
            let before = done.answers.len();
            let outcome = self.try_some(wanted, &documents[before..], &mut done.answers);
            if done.answers.len() > before {
                tries = 0;
            }
            let Err(failure) = outcome else { continue };
            tries += 1;
            match failure {
                Failure::Start(_) if tries < TRIES => {}
                Failure::Start(why) => {
                    let why = self.explain(why).to_string();
                    let rest = documents.len() - done.answers.len();
                    done.answers
                        .extend((0..rest).map(|_| Answer::NoProcess(why.clone())));
                }
                Failure::Death(death) => {
                    done.deaths += 1;
                    tracing::warn!(
                        detail = death.detail,
                        "a process of the function ended; another one is started"
                    );
                    if tries >= death.tries {
                        done.answers.push(Answer::Failed(death.detail));
                        tries = 0;
                    }
                }
            }
        }
        done
    }

    /// Adds the answers to the first of `documents`, all unless a process fails.
    fn try_some(
        &self,
        wanted: &Wanted,
        documents: &[Document],
        answers: &mut Vec<Answer>,
    ) -> Result<(), Failure> {
        let mut loan = self.lend().map_err(Failure::Start)?;
        let Some(process) = &mut loan.process else {
            return Ok(());
        };
        let mut outcome = process.send(wanted, documents, &self.launch);
        for _ in documents {
            match outcome.and_then(|()| process.answer(&self.launch)) {
                Ok(answer) => answers.push(answer),
                Err(why) => {
                    outcome = Err(why);
                    break;
                }
            }
            outcome = Ok(());
        }
        process.rest();
        let Err(why) = outcome else { return Ok(()) };
        Err(match loan.process.take() {
            Some(process) => Failure::Death(process.death(&why, self.launch.timeout)),
            None => Failure::Start(StartFailure::Spawn(why)),
        })
    }

    /// Ends the processes that are not lent.
    pub(super) fn renew(&self) {
        let mut lent = self.lent();
        lent.running -= lent.idle.len();
        let idle = std::mem::take(&mut lent.idle);
        drop(lent);
        drop(idle);
    }

    fn lent(&self) -> MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lend(&self) -> Result<Loan<'_>, StartFailure> {
        let lent = self
            .returned
            .wait_while(self.lent(), |lent| {
                lent.idle.is_empty() && lent.running >= self.most
            })
            .unwrap_or_else(PoisonError::into_inner);
        let mut loan = Loan {
            pool: self,
            process: None,
        };
        let mut lent = lent;
        loan.process = lent.idle.pop_front();
        if loan.process.is_none() {
            lent.running += 1;
            drop(lent);
            loan.process = Some(Process::start(&self.launch)?);
        }
        Ok(loan)
    }
}

enum Failure {
    Start(StartFailure),
    Death(Death),
}

/// A process that is lent, or the place of one that ended.
struct Loan<'a> {
    pool: &'a Pool,
    process: Option<Process>,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut lent = self.pool.lent();
        match self.process.take() {
            Some(process) => lent.idle.push_back(process),
            None => lent.running -= 1,
        }
        drop(lent);
        self.pool.returned.notify_one();
    }
}
