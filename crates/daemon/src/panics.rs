//! Panics: logged like any other error, or turned into a value by a guard.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

/// Most characters kept of a panic's message, which may quote a whole document.
const MESSAGE_MAX: usize = 200;

thread_local! {
    /// Number of guards open on this thread.
    static GUARDS: Cell<u32> = const { Cell::new(0) };
    /// Source position of the last guarded panic.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A caught panic: one line with its message and, after [`log_panics`], its source position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("panic: {0}")]
pub struct Panic(String);

/// Logs every panic outside a guard, instead of the lines that Rust prints.
pub fn log_panics() {
    let printed = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if GUARDS.get() > 0 {
            PLACE.set(place(panic));
            return;
        }
        let thread = std::thread::current();
        tracing::error!(
            thread = thread.name().unwrap_or("unnamed"),
            place = place(panic),
            "panic: {}",
            message(panic.payload())
        );
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            printed(panic);
        }
    }));
}

/// Runs `work` and catches its panic. State that it changed must not be used afterwards unless it is known to be consistent.
pub fn guard<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    GUARDS.set(GUARDS.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(work));
    GUARDS.set(GUARDS.get() - 1);
    done.map_err(|payload| {
        let message = message(payload.as_ref());
        Panic(match PLACE.take() {
            Some(place) => format!("{message} ({place})"),
            None => message,
        })
    })
}

/// Returns the end of the source file's path, and the line.
fn place(panic: &PanicHookInfo<'_>) -> Option<String> {
    let at = panic.location()?;
    let names: Vec<&str> = at.file().rsplit('/').take(4).collect();
    let file: Vec<&str> = names.into_iter().rev().collect();
    Some(format!("{}:{}", file.join("/"), at.line()))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied());
    let line = text
        .unwrap_or("no message")
        .lines()
        .next()
        .unwrap_or_default();
    line.chars().take(MESSAGE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarded_panic_is_a_value_of_one_short_line() {
        assert_eq!(guard(|| 7), Ok(7));
        let why = guard(|| panic!("broken\nand more"))
            .unwrap_err()
            .to_string();
        assert!(
            why.starts_with("panic: broken") && !why.contains('\n'),
            "{why}"
        );
        let long = guard(|| panic!("{}", "x".repeat(5000))).unwrap_err();
        assert!(long.to_string().len() < 2 * MESSAGE_MAX, "{long}");
        let inner = guard(|| guard(|| panic!("inner")).is_err());
        assert_eq!((inner, GUARDS.get()), (Ok(true), 0));
    }
}
