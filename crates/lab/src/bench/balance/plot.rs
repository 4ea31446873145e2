//! The imbalance of steps, from the most even step to the least even one, as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 90.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 14.0;
const COLOURS: [&str; 3] = ["#d95f02", "#1f77b4", "#2ca02c"];

/// Draws the imbalances of the steps of each way.
pub(super) fn svg(ways: [(&str, &[f64]); 3]) -> String {
    let all = ways.iter().flat_map(|(_, steps)| *steps);
    let most = (all.copied().fold(1.1, f64::max) * 10.0).ceil() / 10.0;
    let y = |imbalance: f64| {
        HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (imbalance - 1.0) / (most - 1.0)
    };
    let x = |share: f64| LEFT + (WIDTH - LEFT - RIGHT) * share;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for line in 0..=4 {
        let value = 1.0 + (most - 1.0) * f64::from(line) / 4.0;
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.2}</text>",
            x(1.0),
            LEFT - 6.0,
            y(value) + 4.0,
            at = y(value),
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">steps, the most even first</text>",
        x(1.0),
        HEIGHT - 12.0
    );
    for (colour, (name, steps)) in COLOURS.into_iter().zip(ways) {
        let mut steps = steps.to_vec();
        steps.sort_by(f64::total_cmp);
        let last = steps.len().max(2) - 1;
        let points: Vec<String> = (0..)
            .zip(&steps)
            .map(|(at, step)| format!("{:.1},{:.1}", x(f64::from(at) / last as f64), y(*step)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" points=\"{}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            points.join(" "),
            x(1.0) + 6.0,
            y(steps.last().copied().unwrap_or(1.0)) + 4.0
        );
    }
    out.push_str("</svg>\n");
    out
}
