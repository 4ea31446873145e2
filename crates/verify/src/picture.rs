//! The lineage of a run as SVG: one row per attempt, steps from left to right, readable on light and dark.

use std::fmt::Write;

use batchweave_core::ids::Step;

use crate::report::{AttemptReport, RunReport};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 58.0;
const ROW: f64 = 34.0;
const BAR: f64 = 14.0;
const FOOT: f64 = 58.0;

const STYLE: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
.title{font-size:14px;font-weight:600}.soft{fill:#59636e}.grid{stroke:#d1d9e0}\
.kept{fill:#2da44e}.lost{fill:#afb8c1}.open{fill:#bf8700}.skip{fill:#cf222e}.mark{stroke:#1f2328}\
.link{stroke:#59636e;fill:none}.head{fill:#59636e}.water{stroke:#0969da}.waterline{fill:#0969da}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft,.head{fill:#9198a1}.grid{stroke:#3d444d}\
.kept{fill:#3fb950}.lost{fill:#545d68}.open{fill:#d29922}.skip{fill:#f85149}.mark{stroke:#e6edf3}\
.link{stroke:#9198a1}.water{stroke:#58a6ff}.waterline{fill:#58a6ff}}";

struct Scale {
    first: Step,
    last: Step,
}

impl Scale {
    fn x(&self, step: Step) -> f64 {
        let all = (self.last - self.first).max(1) as f64;
        let at = step.clamp(self.first, self.last) - self.first;
        LEFT + (WIDTH - LEFT - RIGHT) * at as f64 / all
    }

    /// Returns about six round steps for the axis.
    fn ticks(&self) -> Vec<Step> {
        let all = (self.last - self.first).max(1);
        let rough = 10_u64.pow((all / 6).max(1).ilog10());
        let size = [1, 2, 5, 10]
            .map(|n| n * rough)
            .into_iter()
            .find(|s| all / s <= 8)
            .unwrap_or(rough);
        let first = self.first.next_multiple_of(size.max(1));
        (first..=self.last).step_by(size.max(1) as usize).collect()
    }
}

/// Draws a report as SVG.
pub(crate) fn svg(report: &RunReport) -> String {
    let last = report.attempts.iter().map(|a| a.reached).max();
    let scale = Scale {
        first: report.from,
        last: last.unwrap_or_default().max(report.to).max(report.from + 1),
    };
    let foot = TOP + ROW * report.attempts.len() as f64;
    let height = foot + FOOT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>Lineage of job {name}</title>\n<style>{STYLE}</style>\n\
         <text class=\"title\" x=\"16\" y=\"26\">{name}: {}</text>\n",
        verdict(report),
        name = report.name(),
    );
    axis(&mut out, report, &scale, foot);
    for (row, attempt) in report.attempts.iter().enumerate() {
        draw(&mut out, report, attempt, &scale, y(row));
    }
    for (row, attempt) in report.attempts.iter().enumerate() {
        if let Some(parent) = attempt.parent {
            let (x, from) = (scale.x(parent.step), y(parent.attempt as usize) + BAR);
            let _ = writeln!(
                out,
                "<path class=\"link\" d=\"M{x:.1} {from:.1}V{:.1}\"/>\
                 <path class=\"head\" d=\"M{x:.1} {:.1}l-3.5 -6h7z\"/>",
                y(row) - 5.0,
                y(row)
            );
        }
    }
    legend(&mut out, height - 14.0);
    out.push_str("</svg>\n");
    out
}

fn y(row: usize) -> f64 {
    TOP + ROW * row as f64 + (ROW - BAR) / 2.0
}

fn verdict(report: &RunReport) -> String {
    match &report.contradiction {
        None => format!("steps {} to {} proved", report.from, report.to),
        Some(_) => "not proved".to_owned(),
    }
}

fn axis(out: &mut String, report: &RunReport, scale: &Scale, foot: f64) {
    for step in scale.ticks() {
        let x = scale.x(step);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{foot:.1}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{step}</text>",
            TOP - 8.0
        );
    }
    if report.watermark > scale.first {
        let x = scale.x(report.watermark);
        let _ = writeln!(
            out,
            "<line class=\"water\" stroke-width=\"1.5\" stroke-dasharray=\"4 3\" x1=\"{x:.1}\" x2=\"{x:.1}\" \
             y1=\"{TOP}\" y2=\"{:.1}\"/><text class=\"waterline\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">watermark {}: data before it is reclaimed</text>",
            foot + 8.0,
            x - 5.0,
            foot + 12.0,
            report.watermark
        );
    }
}

fn draw(out: &mut String, report: &RunReport, attempt: &AttemptReport, scale: &Scale, y: f64) {
    let _ = writeln!(
        out,
        "<text x=\"16\" y=\"{:.1}\">attempt {}</text><text class=\"soft\" x=\"92\" y=\"{:.1}\">dp {}</text>",
        y + 11.0,
        attempt.attempt,
        y + 11.0,
        attempt.dp_size
    );
    bar(out, scale, y, attempt.start, attempt.reached, "lost");
    let leg = report
        .lineage
        .iter()
        .find(|leg| leg.attempt == attempt.attempt);
    if let Some(leg) = leg {
        let to = leg.to.unwrap_or(attempt.reached);
        bar(
            out,
            scale,
            y,
            leg.from,
            to,
            if leg.proved { "kept" } else { "open" },
        );
    }
    for (first, end) in &attempt.skips {
        let (first, end) = ((*first).max(attempt.start), (*end).min(attempt.reached));
        if first < end {
            bar(out, scale, y, first, end, "skip");
        }
    }
    for mark in &attempt.marks {
        tick(out, scale, y, *mark);
    }
}

fn tick(out: &mut String, scale: &Scale, y: f64, mark: Step) {
    let x = scale.x(mark);
    let _ = writeln!(
        out,
        "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
        y - 2.0,
        y + BAR + 2.0
    );
}

fn bar(out: &mut String, scale: &Scale, y: f64, from: Step, to: Step, class: &str) {
    let (left, right) = (scale.x(from), scale.x(to));
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>",
        (right - left).max(2.0)
    );
}

fn legend(out: &mut String, y: f64) {
    let items = [
        ("kept", "proved, part of the model", 16.0),
        ("lost", "trained and thrown away", 210.0),
        ("open", "not proved", 392.0),
        ("skip", "quarantined", 494.0),
    ];
    for (class, text, x) in items {
        let _ = writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{:.1}\" width=\"12\" height=\"10\" rx=\"2\"/>\
             <text class=\"soft\" x=\"{:.1}\" y=\"{y:.1}\">{text}</text>",
            y - 9.0,
            x + 18.0
        );
    }
    let _ = writeln!(
        out,
        "<line class=\"mark\" x1=\"604\" x2=\"604\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
         <text class=\"soft\" x=\"612\" y=\"{y:.1}\">checkpoint of all coordinates</text>",
        y - 11.0,
        y + 2.0
    );
}
