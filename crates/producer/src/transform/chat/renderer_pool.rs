//! Renders templates in separate processes. A template is a foreign program: a few of its instructions can ask for
//! any memory or any depth of the stack, and the system ends a process that exceeds either. In a separate process
//! that costs one conversation; here it would cost the producer.
//!
//! A process reads its setup and then one conversation after another from its standard input, and answers each on
//! its standard output. All are frames: a length of 8 bytes, little-endian, and JSON or the document itself.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde::{Deserialize, Serialize};

use super::dialect::{CurrentDialect, Dialect};
use super::render::RendererSetup;
use super::rendered::Rendered;
use super::template::TemplateError;
use super::wrong::wrong;
use crate::sources::Reason;
use crate::transform::frames::{read_frame, write_frame};

/// The argument that makes the program a renderer process.
pub const RENDER: &str = "--render-conversations";
/// The name that the process is started by: a file with several programs runs the one of this name.
const PROGRAM: &str = "batchweave-producer";
/// Memory of the program, its threads and the template, in bytes.
const MEMORY_MIN: u64 = 512 << 20;
/// Most copies of the longest text that exist at the same time.
const COPIES: u64 = 8;
const STACK: usize = 16 << 20;
/// Size of the buffers at the ends of a pipe: as much as a pipe holds.
const BUFFER: usize = 64 << 10;
/// Number of processes that try a conversation, because a process may be ended from outside.
const TRIES: u32 = 3;
/// Interval between checks that the parent process still runs.
const PARENT_POLL: Duration = Duration::from_millis(500);

/// Returns the memory limit of a process in bytes.
fn memory_of(setup: &RendererSetup) -> u64 {
    MEMORY_MIN + COPIES * setup.template.output_bytes_max
}

/// The answer to the setup: the reason why the template does not compile, if so.
type Ready = Result<(), String>;

#[derive(Debug, Serialize, Deserialize)]
enum Response {
    Rendered {
        text: String,
        learned: Vec<Range<usize>>,
    },
    BrokenJson {
        column: usize,
        detail: String,
    },
    Wrong {
        detail: String,
    },
    Messages {
        detail: String,
    },
    Changed {
        detail: String,
    },
    LossKey {
        detail: String,
    },
}

impl Response {
    fn from_rendered(rendered: Result<Rendered, Reason>) -> Self {
        match rendered {
            Ok((text, learned)) => Self::Rendered { text, learned },
            Err(Reason::BrokenJson { column, detail }) => Self::BrokenJson { column, detail },
            Err(Reason::Chat { detail }) => Self::Wrong { detail },
            Err(Reason::Messages { detail }) => Self::Messages { detail },
            Err(Reason::Changed { detail }) => Self::Changed { detail },
            Err(Reason::LossKey { detail }) => Self::LossKey { detail },
            Err(other) => Self::Wrong {
                detail: other.to_string(),
            },
        }
    }

    fn rendered(self) -> Result<Rendered, Reason> {
        match self {
            Self::Rendered { text, learned } => Ok((text, learned)),
            Self::BrokenJson { column, detail } => Err(Reason::BrokenJson { column, detail }),
            Self::Wrong { detail } => Err(wrong(detail)),
            Self::Messages { detail } => Err(Reason::Messages { detail }),
            Self::Changed { detail } => Err(Reason::Changed { detail }),
            Self::LossKey { detail } => Err(Reason::LossKey { detail }),
        }
    }
}

/// Renderer processes that wait for work; as many as threads that render at the same time.
pub(super) struct RendererPool {
    program: PathBuf,
    setup: RendererSetup,
    idle: Mutex<Vec<RendererProcess>>,
    dialect: CurrentDialect,
}

impl RendererPool {
    /// Starts the first process, so that a template that does not compile is reported at the start.
    pub(super) fn new(program: &Path, setup: RendererSetup) -> Result<Self, TemplateError> {
        let start = || RendererProcess::start(program, &setup);
        let (first, ready) = retry(start).map_err(|why| TemplateError::NoRenderer { why })?;
        ready.map_err(|detail| setup.template.broken(detail))?;
        Ok(Self {
            program: program.to_owned(),
            setup,
            idle: Mutex::new(vec![first]),
            dialect: CurrentDialect::default(),
        })
    }

    /// Renders by the rules of `dialect` from now on.
    pub(super) fn continue_in(&self, dialect: Dialect) {
        self.dialect.set(dialect);
        self.idle().clear();
    }

    pub(super) fn text(&self, raw: &[u8]) -> Result<Rendered, Reason> {
        let answer = retry(|| {
            let mut process = self.take()?;
            match process.ask(raw) {
                Ok(answer) => {
                    self.idle().push(process);
                    Ok(Some(answer))
                }
                Err(_) if process.ended_by_itself() => Ok(None),
                Err(why) => Err(why),
            }
        });
        match answer {
            Ok(Some(answer)) => answer.rendered(),
            Ok(None) => Err(self.beyond()),
            Err(why) => Err(Reason::NoRenderer {
                why: why.to_string(),
            }),
        }
    }

    fn take(&self) -> io::Result<RendererProcess> {
        let idle = { self.idle().pop() };
        if let Some(idle) = idle {
            return Ok(idle);
        }
        let setup = RendererSetup {
            dialect: self.dialect.get(),
            ..self.setup.clone()
        };
        let (process, ready) = RendererProcess::start(&self.program, &setup)?;
        // The template compiled at the start.
        ready.map_err(io::Error::other)?;
        Ok(process)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<RendererProcess>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beyond(&self) -> Reason {
        let memory = memory_of(&self.setup) >> 20;
        let stack = STACK >> 20;
        wrong(format!(
            "takes the template beyond the {memory} MiB of memory or {stack} MiB of stack that it may use"
        ))
    }
}

/// Repeats `work` until it succeeds, at most [`TRIES`] times; returns the last error.
fn retry<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut tries = 1;
    loop {
        match work() {
            Err(_) if tries < TRIES => tries += 1,
            outcome => return outcome,
        }
    }
}

struct RendererProcess {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl RendererProcess {
    /// Starts a process and sends it its setup. Returns its answer too.
    fn start(program: &Path, setup: &RendererSetup) -> io::Result<(Self, Ready)> {
        // No environment: it may hold credentials, which a template must not see.
        let mut child = Command::new(program)
            .arg0(PROGRAM)
            .arg(RENDER)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let (Some(input), Some(output)) = (input, output) else {
            return Err(io::Error::other("its pipes are missing"));
        };
        let mut process = Self {
            child,
            input: BufWriter::with_capacity(BUFFER, input),
            output: BufReader::with_capacity(BUFFER, output),
        };
        let setup = serde_json::to_vec(setup)?;
        let ready = process.exchange(&setup);
        match ready {
            Ok(ready) => Ok((process, serde_json::from_slice(&ready)?)),
            // The template compiler recurses, so a deeply nested template exhausts the stack.
            Err(_) if process.ended_by_itself() => {
                let detail = "it is nested too deeply, or too large".to_owned();
                Ok((process, Err(detail)))
            }
            Err(why) => Err(why),
        }
    }

    fn ask(&mut self, raw: &[u8]) -> io::Result<Response> {
        Ok(serde_json::from_slice(&self.exchange(raw)?)?)
    }

    fn exchange(&mut self, frame: &[u8]) -> io::Result<Vec<u8>> {
        write_frame(&mut self.input, frame)?;
        let answer = read_frame(&mut self.output, u64::MAX)?;
        Ok(answer.ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    /// Returns whether the process exhausted its memory or stack, rather than being ended from outside.
    fn ended_by_itself(&mut self) -> bool {
        let signal = self.child.wait().ok().and_then(|status| status.signal());
        let own = [Signal::ABORT, Signal::SEGV, Signal::BUS];
        signal.is_some_and(|signal| own.iter().any(|own| own.as_raw() == signal))
    }
}

impl Drop for RendererProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Renders conversations from standard input until it ends. A program started with [`RENDER`] calls this.
pub fn serve() -> io::Result<()> {
    let parent = parent_id();
    let thread = std::thread::Builder::new;
    // The input ends with the parent, but a template may run for minutes without reading it.
    thread().spawn(move || {
        while parent_id() == parent {
            std::thread::sleep(PARENT_POLL);
        }
        std::process::exit(0)
    })?;
    let rendering = thread().stack_size(STACK).spawn(|| {
        // One write per answer wakes the other side once.
        let output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
        render_all(io::stdin().lock(), output)
    })?;
    let ended = rendering.join();
    ended.unwrap_or_else(|_| Err(io::Error::other("the template's thread panicked")))
}

fn render_all(mut input: impl Read, mut output: impl Write) -> io::Result<()> {
    let Some(setup) = read_frame(&mut input, u64::MAX)? else {
        return Ok(());
    };
    let setup: RendererSetup = serde_json::from_slice(&setup)?;
    limit(Resource::As, memory_of(&setup))?;
    // A core file would hold the conversation.
    limit(Resource::Core, 0)?;
    let rendering = setup.compile();
    let ready: Ready = rendering.as_ref().map(|_| ()).map_err(Clone::clone);
    write_frame(&mut output, &serde_json::to_vec(&ready)?)?;
    let Ok(rendering) = rendering else {
        return Ok(());
    };
    while let Some(raw) = read_frame(&mut input, u64::MAX)? {
        let answer = Response::from_rendered(rendering.text(&raw, setup.dialect));
        write_frame(&mut output, &serde_json::to_vec(&answer)?)?;
    }
    Ok(())
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    Ok(setrlimit(resource, limit)?)
}
