//! `batchweave-all`: the programs `batchweave`, `batchweave-producer`, `batchweave-consumer` and `batchweave-lab` in
//! one file. It runs the program whose name it is called by, as a link is, or the one that its first argument names.
//! Otherwise its arguments are those of `batchweave`.
#![forbid(unsafe_code)]

use std::ffi::{CString, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use batchweave_console::programs::{self, Name};
use batchweave_daemon::{Exit, run_to_exit};

fn main() -> ExitCode {
    programs::contains_all();
    let args: Vec<OsString> = std::env::args_os().collect();
    let called = args
        .first()
        .and_then(|path| Path::new(path).file_name())
        .and_then(Name::from_word);
    if called.is_none()
        && let [_, word, rest @ ..] = &args[..]
        && let Some(name) = Name::from_word(word)
    {
        return become_program(name, rest).into();
    }
    let name = called.unwrap_or(Name::Operators);
    // The kernel's name of this process, which `ps` and `pkill` use; only they depend on it.
    if let Ok(shown) = CString::new(name.as_str()) {
        let _ = rustix::thread::set_name(&shown);
    }
    match name {
        Name::Producer => batchweave_producer::main().into(),
        Name::Consumer => batchweave_consumer::main().into(),
        Name::Lab => verbs(args, true).into(),
        Name::Operators => {
            let lab = batchweave_cli::runs_in_lab(&args);
            verbs(args, lab).into()
        }
    }
}

/// Replaces this process by itself under the name of a program, so that `ps`, usage lines and logs show that name.
/// Returns only when that fails.
fn become_program(name: Name, args: &[OsString]) -> Exit {
    let run = |path| Command::new(path).arg0(name.as_str()).args(args).exec();
    let error = std::env::current_exe().map_or_else(|error| error, run);
    eprintln!("{name}: cannot start from batchweave-all: {error}");
    Exit::Failure
}

fn verbs(args: Vec<OsString>, lab: bool) -> Exit {
    if lab {
        run_to_exit("batchweave-lab", async { batchweave_lab::run(args).await })
    } else {
        run_to_exit("batchweave", async { batchweave_cli::run(args).await })
    }
}
