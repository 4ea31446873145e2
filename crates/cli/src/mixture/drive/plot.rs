//! The shares and losses of a replay as SVG: a line per source, readable on light and dark.

use std::fmt::Write as _;

use super::dry_run_report::{DryRunReport, Replayed, ReplayedSource};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 180.0;
const TOP: f64 = 56.0;
const PANEL: f64 = 180.0;
const GAP: f64 = 56.0;
const FOOT: f64 = 40.0;
/// Colours that people with any colour vision tell apart; they repeat, and names stand at the lines' ends.
const COLORS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1",
];
const STYLE: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
.title{font-size:14px;font-weight:600}.soft{fill:#59636e}.grid{stroke:#d1d9e0}\
.line{fill:none;stroke-width:2;stroke-linejoin:round}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}.grid{stroke:#3d444d}}";

type Measure = fn(&ReplayedSource) -> Option<f64>;

/// One of the two diagrams.
struct Panel<'r> {
    report: &'r DryRunReport,
    top: f64,
    title: &'static str,
    of: Measure,
    highest: f64,
}

/// Draws the shares, and below them the losses.
pub(super) fn svg(report: &DryRunReport) -> String {
    let height = TOP + 2.0 * PANEL + GAP + FOOT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>Shares of sources by rule {rule}</title>\n<style>{STYLE}</style>\n\
         <text class=\"title\" x=\"16\" y=\"24\">{job}: what rule {rule} would have done</text>\n",
        rule = escaped(&report.rule),
        job = escaped(&report.job),
    );
    let share = |one: &ReplayedSource| Some(one.share);
    let loss = |one: &ReplayedSource| one.loss;
    let panels: [(&str, Measure); 2] = [("share", share), ("loss", loss)];
    for ((title, of), n) in panels.into_iter().zip([0.0, 1.0]) {
        let all = report.changes.iter().flat_map(|change| &change.sources);
        let highest = all.filter_map(of).fold(f64::MIN_POSITIVE, f64::max);
        let panel = Panel {
            report,
            top: TOP + n * (PANEL + GAP),
            title,
            of,
            highest: highest * 1.05,
        };
        panel.draw(&mut out);
    }
    out.push_str("</svg>\n");
    out
}

impl Panel<'_> {
    fn draw(&self, out: &mut String) {
        let bottom = self.top + PANEL;
        let title = self.top - 8.0;
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{title:.1}\">{}</text>",
            self.title
        );
        for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let (y, value) = (bottom - PANEL * part, self.highest * part);
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.2}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0
            );
        }
        let first = self.report.changes.first().map_or(0, |change| change.to);
        for step in [first, self.last()] {
            let _ = writeln!(
                out,
                "<text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">step {step}</text>",
                self.x(step),
                bottom + 18.0
            );
        }
        let sources = self
            .report
            .changes
            .last()
            .map_or(0, |last| last.sources.len());
        let mut lowest = f64::MAX;
        // The highest end first, so that names are moved down where lines end side by side.
        let mut ends: Vec<(usize, f64)> = (0..sources).map(|n| (n, self.end(n))).collect();
        ends.sort_by(|a, b| a.1.total_cmp(&b.1));
        for (n, y) in ends.into_iter().rev() {
            let name = (y + 4.0).min(lowest - 14.0);
            lowest = name;
            self.line(out, n, name);
        }
    }

    fn line(&self, out: &mut String, n: usize, name_at: f64) {
        let color = COLORS[n % COLORS.len()];
        let points = self.report.changes.iter().filter_map(|change| {
            let (x, y) = (self.x(change.to), self.y(self.value(change, n)?));
            Some(format!("{x:.1},{y:.1}"))
        });
        let points: Vec<String> = points.collect();
        let last = self.report.changes.last();
        let name = last.and_then(|last| last.sources.get(n));
        let _ = writeln!(
            out,
            "<polyline class=\"line\" stroke=\"{color}\" points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{name_at:.1}\" style=\"fill:{color}\">{}</text>",
            points.join(" "),
            WIDTH - RIGHT + 8.0,
            escaped(name.map_or("", |one| &one.source))
        );
    }

    fn value(&self, change: &Replayed, n: usize) -> Option<f64> {
        change.sources.get(n).and_then(self.of)
    }

    fn end(&self, n: usize) -> f64 {
        let mut changes = self.report.changes.iter().rev();
        let last = changes.find_map(|change| self.value(change, n));
        self.y(last.unwrap_or_default())
    }

    fn last(&self) -> u64 {
        self.report.changes.last().map_or(1, |change| change.to)
    }

    fn x(&self, step: u64) -> f64 {
        let first = self.report.changes.first().map_or(0, |change| change.to);
        let all = self.last().saturating_sub(first).max(1) as f64;
        LEFT + (WIDTH - LEFT - RIGHT) * step.saturating_sub(first) as f64 / all
    }

    fn y(&self, value: f64) -> f64 {
        self.top + PANEL * (1.0 - (value / self.highest).clamp(0.0, 1.0))
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
