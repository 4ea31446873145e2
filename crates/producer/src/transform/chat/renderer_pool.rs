//! Templates rendered in processes of their own. A template is a program that somebody else wrote: a few
//! of its instructions can ask for any memory, or for any depth of the stack, and a process that has
//! neither is ended by its system. There, that costs one conversation; here, it would cost the producer.
//!
//! A process reads its setup and then one conversation after another from its standard input, and answers
//! each; all are frames: a length of 8 bytes, little-endian, and JSON or the document itself.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::os::unix::process::{ExitStatusExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde::{Deserialize, Serialize};

use super::render::{Rendered, RendererSetup};
use super::template::TemplateError;
use super::wrong;
use crate::sources::Reason;

/// The argument by which a program becomes such a process.
pub const RENDER: &str = "--render-conversations";
/// Of the program, its threads and what a template takes for itself.
const MEMORY_LEAST: u64 = 512 << 20;
/// Of the longest text that it may write: copies on the way.
const COPIES: u64 = 8;
const STACK: usize = 16 << 20;
/// Of a pipe's ends, as much as a pipe holds.
const BUFFER: usize = 64 << 10;
/// A process that somebody else has ended leaves its conversation to the next one.
const TRIES: u32 = 3;
/// A process without its parent is of no use.
const PARENT_LOOK: Duration = Duration::from_millis(500);

/// Memory that a process may use.
fn memory_of(setup: &RendererSetup) -> u64 {
    MEMORY_LEAST + COPIES * setup.template.output_bytes_max
}

/// What is wrong with the template, if anything is; the answer to the setup.
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
}

impl Response {
    fn of(rendered: Result<Rendered, Reason>) -> Self {
        match rendered {
            Ok((text, learned)) => Self::Rendered { text, learned },
            Err(Reason::BrokenJson { column, detail }) => Self::BrokenJson { column, detail },
            Err(Reason::Chat { detail }) => Self::Wrong { detail },
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
        }
    }
}

/// Processes that wait for work; there are as many as threads that render at once.
pub(super) struct RendererPool {
    program: PathBuf,
    setup: RendererSetup,
    idle: Mutex<Vec<RendererProcess>>,
}

impl RendererPool {
    /// Starts the first process, so that a template that is none is told now.
    pub(super) fn new(program: &Path, setup: RendererSetup) -> Result<Self, TemplateError> {
        let start = || RendererProcess::start(program, &setup);
        let (first, ready) = again(start).map_err(|why| TemplateError::NoRenderer { why })?;
        ready.map_err(|detail| setup.template.broken(detail))?;
        Ok(Self {
            program: program.to_owned(),
            setup,
            idle: Mutex::new(vec![first]),
        })
    }

    pub(super) fn text(&self, raw: &[u8]) -> Result<Rendered, Reason> {
        let answer = again(|| {
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
        let (process, ready) = RendererProcess::start(&self.program, &self.setup)?;
        // It was good at the start.
        ready.map_err(io::Error::other)?;
        Ok(process)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<RendererProcess>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beyond(&self) -> Reason {
        let (memory, stack) = (memory_of(&self.setup) >> 20, STACK >> 20);
        wrong(format!(
            "takes the template beyond the {memory} MiB of memory or {stack} MiB of stack that it may use"
        ))
    }
}

/// What `work` gives, or how it failed the last time.
fn again<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
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
    /// A process that has its setup, and what it says of the template.
    fn start(program: &Path, setup: &RendererSetup) -> io::Result<(Self, Ready)> {
        // No environment: it holds credentials, and a template needs none of it.
        let mut child = Command::new(program)
            .arg(RENDER)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
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
            // The compiler of templates recurses.
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
        let answer = read_frame(&mut self.output)?;
        Ok(answer.ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    /// Whether memory or stack were too small for it, and nobody else ended it.
    fn ended_by_itself(&mut self) -> bool {
        let signal = self.child.wait().ok().and_then(|status| status.signal());
        let own = [Signal::ABORT, Signal::SEGV, Signal::BUS];
        signal.is_some_and(|signal| own.iter().any(|own| own.as_raw() == signal))
    }
}

impl Drop for RendererProcess {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Renders what comes by standard input until it ends: what a program does that is started with
/// [`RENDER`].
pub fn serve() -> io::Result<()> {
    let parent = parent_id();
    let thread = std::thread::Builder::new;
    // Its input ends with its parent, but a template may look at neither for minutes.
    thread().spawn(move || {
        while parent_id() == parent {
            std::thread::sleep(PARENT_LOOK);
        }
        std::process::exit(0)
    })?;
    let rendering = thread().stack_size(STACK);
    let rendering = rendering.spawn(|| {
        // One write an answer: the other side wakes up once.
        let output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
        render_all(io::stdin().lock(), output)
    })?;
    let ended = rendering.join();
    ended.unwrap_or_else(|_| Err(io::Error::other("the template's thread panicked")))
}

fn render_all(mut input: impl Read, mut output: impl Write) -> io::Result<()> {
    let Some(setup) = read_frame(&mut input)? else {
        return Ok(());
    };
    let setup: RendererSetup = serde_json::from_slice(&setup)?;
    limit(Resource::As, memory_of(&setup))?;
    // A core file would hold the conversation.
    limit(Resource::Core, 0)?;
    let rendering = setup.rendering();
    let ready: Ready = rendering.as_ref().map(|_| ()).map_err(Clone::clone);
    write_frame(&mut output, &serde_json::to_vec(&ready)?)?;
    let Ok(rendering) = rendering else {
        return Ok(());
    };
    while let Some(raw) = read_frame(&mut input)? {
        let answer = Response::of(rendering.text(&raw));
        write_frame(&mut output, &serde_json::to_vec(&answer)?)?;
    }
    Ok(())
}

fn limit(of: Resource, most: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    Ok(setrlimit(of, limit)?)
}

fn write_frame(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// None at the end. Both ends are the same program, so lengths are believed.
fn read_frame(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 8];
    match from.read_exact(&mut length) {
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u64::from_le_bytes(length);
    let mut bytes = Vec::new();
    let read = from.take(length).read_to_end(&mut bytes)?;
    if (read as u64) < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(bytes))
}
