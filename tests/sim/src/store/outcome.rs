//! The outcome of one request: the time of its effect, the time of its answer, and the answer. It
//! covers all four cases of a write: with and without an effect, reported or not.

use std::time::Duration;

use batchweave_store::{Effect, ErrorKind, Op};
use serde::{Deserialize, Serialize};

use crate::draw::Draw;

/// A client gives up on a request after this time.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// A write that takes effect after its client gave up does so within this time.
const LATE_MAX: Duration = Duration::from_secs(30);

/// The rate of each fault, per 1000 requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// A write takes effect, but its answer is lost.
    pub lost_answer: u32,
    /// A write never arrives, and no answer does.
    pub lost_request: u32,
    /// A write takes effect seconds after its client gave up.
    pub late: u32,
    /// The connection breaks immediately; the write may take effect shortly after.
    pub reset: u32,
    /// 409: the effect is unknown.
    pub conflict: u32,
    /// 503; half of the writes take effect nevertheless.
    pub throttled: u32,
    /// 500; half of the writes take effect nevertheless.
    pub server: u32,
    /// The connection is refused: the request has no effect.
    pub refused: u32,
    /// A client's own retry meets its first try: the winner gets 412.
    pub own_412: u32,
    /// A read fails: no answer, 500, or a truncated body.
    pub read: u32,
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The true effect of the request.
    True,
    /// "The object exists", whatever the effect.
    Exists,
    Fail(ErrorKind, Effect, &'static str),
}

/// The outcome of one request, in times since it was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) effect: Option<Duration>,
    pub(crate) answer: Duration,
    pub(crate) reply: Reply,
}

const LOST: Reply = Reply::Fail(ErrorKind::Timeout, Effect::Unknown, "no answer in time");
const READ_LOST: Reply = Reply::Fail(ErrorKind::Timeout, Effect::DidNot, "no answer in time");

/// Draws the outcome of a request that takes `latency` without a fault.
pub(crate) fn draw(op: Op, latency: Duration, rates: &Rates, draw: &mut Draw) -> Outcome {
    let effect = latency.mul_f64(draw.unit());
    let writes = matches!(op, Op::Create | Op::Upload | Op::Delete);
    let plain = Outcome {
        effect: Some(effect),
        answer: latency,
        reply: Reply::True,
    };
    let outcome = if writes {
        write(op, plain, rates, draw)
    } else if draw.chance(rates.read) {
        read(plain, draw)
    } else {
        plain
    };
    if outcome.answer <= TIMEOUT {
        return outcome;
    }
    Outcome {
        answer: TIMEOUT,
        reply: if writes { LOST } else { READ_LOST },
        ..outcome
    }
}

/// A fault of a write, its rate in a thousand writes and the outcome that it causes.
struct Fault {
    rate: u32,
    outcome: Outcome,
}

fn write(op: Op, plain: Outcome, rates: &Rates, draw: &mut Draw) -> Outcome {
    let pick = draw.range(0..1000) as u32;
    let mut sum = 0;
    for fault in write_faults(op, plain, rates, draw) {
        sum += fault.rate;
        if pick < sum {
            return fault.outcome;
        }
    }
    plain
}

/// Draws the outcomes of all faults, so that the rates do not change later draws.
fn write_faults(op: Op, plain: Outcome, rates: &Rates, draw: &mut Draw) -> [Fault; 9] {
    let half = draw.chance(500).then_some(plain.effect).flatten();
    let fault = |rate, effect, answer, reply| Fault {
        rate,
        outcome: Outcome {
            effect,
            answer,
            reply,
        },
    };
    let failed = |rate, kind, text| {
        let reply = Reply::Fail(kind, Effect::Unknown, text);
        fault(rate, half, plain.answer, reply)
    };
    let refused = Reply::Fail(ErrorKind::Unreachable, Effect::DidNot, "connection refused");
    let own_412 = if op == Op::Create { rates.own_412 } else { 0 };
    [
        fault(rates.lost_answer, plain.effect, TIMEOUT, LOST),
        fault(rates.lost_request, None, TIMEOUT, LOST),
        fault(rates.late, Some(late(draw)), TIMEOUT, LOST),
        fault(
            rates.reset,
            Some(plain.answer.mul_f64(1.0 + 2.0 * draw.unit())),
            plain.answer.mul_f64(draw.unit()),
            Reply::Fail(ErrorKind::Timeout, Effect::Unknown, "connection reset"),
        ),
        failed(rates.conflict, ErrorKind::Conflict, "HTTP 409"),
        failed(rates.throttled, ErrorKind::Throttled, "HTTP 503 SlowDown"),
        failed(rates.server, ErrorKind::Server, "HTTP 500"),
        fault(rates.refused, None, plain.answer, refused),
        fault(own_412, plain.effect, plain.answer * 2, Reply::Exists),
    ]
}

fn late(draw: &mut Draw) -> Duration {
    TIMEOUT + LATE_MAX.mul_f64(draw.unit())
}

fn read(plain: Outcome, draw: &mut Draw) -> Outcome {
    let fail = |kind, text| Reply::Fail(kind, Effect::DidNot, text);
    let (answer, reply) = match draw.range(0..4) {
        0 => (TIMEOUT, READ_LOST),
        1 => (plain.answer, fail(ErrorKind::Server, "HTTP 500")),
        2 => (
            plain.answer,
            fail(ErrorKind::Throttled, "HTTP 503 SlowDown"),
        ),
        _ => (
            plain.answer,
            fail(ErrorKind::Timeout, "the body ended early"),
        ),
    };
    Outcome {
        effect: None,
        answer,
        reply,
    }
}
