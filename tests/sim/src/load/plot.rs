//! A run as an SVG plot: latency second by second on a logarithmic scale.

use std::fmt::Write;

use super::figures::Figures;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 30.0;

/// The scales of a plot.
struct Scales {
    /// The powers of ten on the axis of milliseconds.
    decades: f64,
    seconds: f64,
}

impl Scales {
    fn fit(figures: &Figures) -> Self {
        let most = figures
            .timeline
            .iter()
            .map(|s| s.p99_ms)
            .fold(10.0_f64, f64::max);
        Self {
            decades: most.log10().ceil().max(1.0),
            seconds: figures.timeline.len().max(2) as f64 - 1.0,
        }
    }

    fn x(&self, second: usize) -> f64 {
        LEFT + (WIDTH - LEFT - 10.0) * second as f64 / self.seconds
    }

    fn y(&self, ms: f64) -> f64 {
        let part = ms.max(1.0).log10() / self.decades;
        HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part
    }
}

/// Returns a plot of p50 and p99 of each second.
pub fn svg(figures: &Figures) -> String {
    let scales = Scales::fit(figures);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    );
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"18\">{} producers, {}, {}, {}: ready to visible</text>",
        figures.producers, figures.policy, figures.profile, figures.scenario
    );
    for decade in 0..=scales.decades as i32 {
        let (ms, at) = (10_f64.powi(decade), scales.y(10_f64.powi(decade)));
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ms} ms</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    curve(&mut out, figures, &scales, ("p50", "#1f77b4", 0));
    curve(&mut out, figures, &scales, ("p99", "#d62728", 1));
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{} s</text>\n</svg>",
        WIDTH - 10.0,
        HEIGHT - BOTTOM + 16.0,
        figures.timeline.len()
    );
    out
}

/// Draws one quantile, with its name at this place in the legend.
fn curve(
    out: &mut String,
    figures: &Figures,
    scales: &Scales,
    (name, colour, pick): (&str, &str, u32),
) {
    let points: Vec<_> = figures
        .timeline
        .iter()
        .enumerate()
        .filter(|(_, s)| s.visible > 0)
        .map(|(at, s)| {
            let ms = if pick == 0 { s.p50_ms } else { s.p99_ms };
            format!("{:.1},{:.1}", scales.x(at), scales.y(ms))
        })
        .collect();
    let _ = writeln!(
        out,
        "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
        points.join(" "),
        LEFT + 10.0 + 40.0 * f64::from(pick),
        HEIGHT - 8.0
    );
}
