//! The shares of three sources over a run whose mixture changes in the middle, as SVG.

use std::fmt::Write as _;

use batchweave_console::CliError;
use batchweave_core::order::weights;

use super::{OrderArgs, WEIGHTS, draw};
use crate::error::bench_error;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 50.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 14.0;
/// The weights after the change.
const AFTER: [f64; 3] = [0.2, 0.3, 0.5];
/// Points of each line: each is the share of a source in its part of the run.
const POINTS: usize = 100;
const COLOURS: [&str; 3] = ["#1f77b4", "#d95f02", "#2ca02c"];
const NAMES: [&str; 3] = ["web", "code", "math"];

pub(super) fn svg(args: &OrderArgs) -> Result<String, CliError> {
    let mixture = weights(&AFTER).map_err(bench_error)?;
    let all = 2 * args.tokens;
    let mut parts = vec![[0_u64; WEIGHTS.len()]; POINTS];
    draw(args, [(1, mixture)].into(), |state, source, tokens| {
        let part = (state.total[1] - 1) as u128 * POINTS as u128 / u128::from(all);
        parts[(part as usize).min(POINTS - 1)][source] += tokens;
    })?;
    let x = |part: f64| LEFT + (WIDTH - LEFT - 60.0) * part / POINTS as f64;
    let y = |share: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share / 0.7;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for percent in [0, 20, 40, 60] {
        let at = y(f64::from(percent) / 100.0);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>",
            x(POINTS as f64),
            LEFT - 6.0,
            at + 4.0
        );
    }
    let middle = x(POINTS as f64 / 2.0);
    let _ = writeln!(
        out,
        "<line x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{TOP}\" y2=\"{:.1}\" stroke=\"#999\" stroke-dasharray=\"4 3\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">mixture set</text>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">tokens of the run</text>",
        HEIGHT - BOTTOM,
        middle + 5.0,
        TOP + 10.0,
        x(POINTS as f64),
        HEIGHT - 12.0
    );
    for (n, (colour, name)) in COLOURS.into_iter().zip(NAMES).enumerate() {
        let share = |part: &[u64; 3]| part[n] as f64 / part.iter().sum::<u64>().max(1) as f64;
        let points: Vec<String> = parts
            .iter()
            .enumerate()
            .map(|(at, part)| format!("{:.1},{:.1}", x(at as f64 + 0.5), y(share(part))))
            .collect();
        let end = parts.last().map_or(0.0, share);
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" points=\"{}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            points.join(" "),
            x(POINTS as f64) + 6.0,
            y(end) + 4.0
        );
    }
    out.push_str("</svg>\n");
    Ok(out)
}
