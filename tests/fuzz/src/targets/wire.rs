//! The socket between daemon and ranks, in both directions, and the state in a checkpoint.

use std::fmt::Debug;

use batchweave_client::State;
use batchweave_wire::{ClientMessage, DaemonMessage, WireError};

use crate::check::good;
use crate::seal;

/// Returns the message unchanged and with the right length in its header.
fn each(input: &[u8], check: impl Fn(&[u8])) {
    check(input);
    let mut sealed = input.to_vec();
    seal::message(&mut sealed);
    if sealed != input {
        check(&sealed);
    }
}

fn again<M: PartialEq + Debug>(
    message: &M,
    encode: impl Fn(&M) -> Result<Vec<u8>, WireError>,
    decode: impl Fn(&[u8]) -> Result<M, WireError>,
) -> Option<Vec<u8>> {
    // JSON with numbers and escapes of another length may exceed the size of a message.
    let bytes = encode(message).ok()?;
    assert_eq!(good(decode(&bytes), "a message is read again"), *message);
    Some(bytes)
}

/// Messages that the daemon reads.
pub(super) fn from_rank(input: &[u8]) {
    each(input, |bytes| {
        let Ok(message) = ClientMessage::decode(bytes) else {
            return;
        };
        let written = again(&message, ClientMessage::encode, ClientMessage::decode);
        match &message {
            ClientMessage::Hello(hello) => {
                let _ = (hello.check(), hello.leads());
            }
            _ => same(written, bytes),
        }
    });
}

/// Messages that a rank reads.
pub(super) fn from_daemon(input: &[u8]) {
    each(input, |bytes| {
        let Ok(message) = DaemonMessage::decode(bytes) else {
            return;
        };
        let written = again(&message, DaemonMessage::encode, DaemonMessage::decode);
        match &message {
            DaemonMessage::Error(fault) | DaemonMessage::MarkRefused(fault) => {
                let _ = (fault.known_name(), fault.to_string());
            }
            DaemonMessage::StreamInfo(_) | DaemonMessage::Stage(_) => {}
            DaemonMessage::Layout(layout) => {
                for array in &layout.layout.arrays {
                    assert!(array.bytes().is_some());
                }
            }
            _ => same(written, bytes),
        }
    });
}

/// Messages of fixed fields have one form, except for the four bytes at the end of the header.
fn same(written: Option<Vec<u8>>, read: &[u8]) {
    let Some(written) = written else {
        panic!("a message that was read can't be written");
    };
    assert_eq!(written[..12], read[..12]);
    assert_eq!(written[16..], read[16..], "a message, written again");
}

pub(super) fn saved_state(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    // The inner text alone is used as well, so that few mutations lead behind the quotes.
    let wrapped = good(serde_json::to_string(&[("batchweave", &text)]), "text");
    let wrapped = wrapped
        .replacen("[[\"batchweave\",", "{\"batchweave\":", 1)
        .replacen("]]", "}", 1);
    for text in [&*text, &wrapped] {
        if let Ok(state) = State::parse(text) {
            let written = state.to_json();
            assert_eq!(good(State::parse(&written), "a state is read again"), state);
            let _ = state.inner();
        }
    }
}
