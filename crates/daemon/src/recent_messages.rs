//! The last warnings and errors, for the status page. The same layer keeps repeats out of the log.

use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::repeats::{OF_A_KIND, Repeats, SAME};
use crate::timestamp;

const KEPT: usize = 20;
const TEXT_MAX: usize = 600;

static REPEATS: Repeats = Repeats::new(SAME);
static KINDS: Repeats = Repeats::new(OF_A_KIND);
static RECENT: Mutex<VecDeque<Message>> = Mutex::new(VecDeque::new());

/// One warning or error; repeats of the last one are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Message {
    at: String,
    level: &'static str,
    text: String,
    times: u64,
}

/// Returns the last messages, newest first.
pub(crate) fn messages() -> Vec<Message> {
    let recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    recent.iter().rev().cloned().collect()
}

/// A layer that keeps messages and filters repeats.
pub(crate) struct Keeper;

impl<S: Subscriber> Layer<S> for Keeper {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            _ => return true,
        };
        let mut words = Words::default();
        event.record(&mut words);
        let (kind, now) = (words.text.clone(), Instant::now());
        let text = words.text + &words.fields;
        let admitted = REPEATS.admit(&text, now);
        keep(level, text);
        let Some(repeats) = admitted else {
            return false;
        };
        let Some(others) = KINDS.admit(&kind, now) else {
            return false;
        };
        if repeats > 0 {
            tracing::info!(
                left_out = repeats,
                "repeats of the next message were left out"
            );
        }
        if others > 0 {
            tracing::info!(
                left_out = others,
                "messages like the next one were left out"
            );
        }
        true
    }
}

fn keep(level: &'static str, mut text: String) {
    text.truncate(text.floor_char_boundary(TEXT_MAX));
    let at = timestamp::now();
    let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(last) = recent.back_mut().filter(|last| last.text == text) {
        last.at = at;
        last.times += 1;
        return;
    }
    if recent.len() == KEPT {
        recent.pop_front();
    }
    recent.push_back(Message {
        at,
        level,
        text,
        times: 1,
    });
}

#[derive(Default)]
struct Words {
    text: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_that_differ_is_bounded() {
        let kinds = Repeats::new(OF_A_KIND);
        let began = Instant::now();
        let admitted = (0..68_000).filter(|_| kinds.admit("a rank was refused", began).is_some());
        assert_eq!(admitted.count(), OF_A_KIND as usize);
        let later = began + std::time::Duration::from_mins(1);
        assert_eq!(kinds.admit("a rank was refused", later), Some(67_900));
    }

    #[test]
    fn repeats_are_counted_and_the_list_is_bounded() {
        for number in 0..3 * KEPT {
            keep("error", format!("message {}", number / 2));
        }
        let now = messages();
        assert_eq!(now.len(), KEPT);
        assert_eq!((now[0].text.as_str(), now[0].times), ("message 29", 2));
    }
}
