//! The stored bytes of a run over its steps, as SVG.

use std::fmt::Write;

use batchweave_console::output::bytes;
use batchweave_core::ids::Step;
use serde::Serialize;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 30.0;

/// Stored bytes of data when the job was at a step.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Sample {
    pub(super) step: Step,
    pub(super) stored_bytes: u64,
}

/// Draws the samples, their maximum and the bound of a run with a checkpoint every `interval` steps.
pub(super) fn svg(interval: u64, (bound, most): (u64, u64), samples: &[Sample]) -> String {
    let top = bound as f64 * 1.15;
    let steps = samples.last().map_or(1, |s| s.step).max(1) as f64;
    let x = |step: u64| LEFT + (WIDTH - LEFT - 10.0) * step as f64 / steps;
    let y = |stored: u64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * stored as f64 / top;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">stored bytes of a run, a checkpoint every {interval} steps</text>"
    );
    for (stored, colour, name) in [
        (0, "#999", String::new()),
        (bound, "#d62728", "bound: ".to_owned()),
        (most, "#ddd", "most: ".to_owned()),
    ] {
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"{colour}\"/>\
             <text x=\"{1:.1}\" y=\"{2:.1}\">{name}{3}</text>",
            y(stored),
            LEFT + 4.0,
            y(stored) - 4.0,
            bytes(stored)
        );
    }
    let points: Vec<_> = corners(samples)
        .map(|s| format!("{:.1},{:.1}", x(s.step), y(s.stored_bytes)))
        .collect();
    let _ = writeln!(
        out,
        "<polyline fill=\"none\" stroke=\"#1f77b4\" stroke-width=\"1.2\" points=\"{}\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">step {steps}</text>\n</svg>",
        points.join(" "),
        WIDTH - 10.0,
        HEIGHT - BOTTOM + 16.0
    );
    out
}

/// Returns the samples around each fall and every hundredth one, which draw the same line.
fn corners(samples: &[Sample]) -> impl Iterator<Item = &Sample> {
    samples.iter().enumerate().filter_map(|(at, sample)| {
        let next = samples.get(at + 1);
        let falls = next.is_some_and(|next| next.stored_bytes < sample.stored_bytes);
        let before = at.checked_sub(1).and_then(|at| samples.get(at));
        let fell = before.is_some_and(|before| before.stored_bytes > sample.stored_bytes);
        (falls || fell || at % 100 == 0).then_some(sample)
    })
}
