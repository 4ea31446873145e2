//! The report as a table.

use std::fmt::Write as _;

use super::measures::Figures;
use super::{BalanceReport, BalancedFigures};

impl BalanceReport {
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{} slices x {} micro-batches x {} tokens, windows of {}, crossover {}\n",
            self.slices, self.micro_batches, self.tokens, self.window, self.crossover
        );
        text.push_str(
            "                       slices   p99     rows     p99     step     fill    time  late  tokens/s\n",
        );
        for corpus in &self.corpora {
            balanced(&mut text, corpus.corpus, &corpus.balanced);
            line(
                &mut text,
                "  best_fit",
                &corpus.best_fit,
                corpus.best_fit_time_ratio,
            );
            line(
                &mut text,
                "  greedy",
                &corpus.greedy,
                corpus.greedy_time_ratio,
            );
            let ranks = corpus.balanced.figures.slice_imbalance_by_ranks.iter();
            let ranks: Vec<String> = ranks
                .map(|(ranks, imbalance)| format!("{ranks}: {imbalance:.4}"))
                .collect();
            let _ = writeln!(text, "  by ranks            {}", ranks.join("  "));
        }
        for variant in &self.variants {
            balanced(&mut text, &variant.name, &variant.balanced);
        }
        let _ = writeln!(
            text,
            "mixture                the share of a source is off by {:.4} per batch, {:.4} per window ({} steps)",
            self.mixture.batch_share_off, self.mixture.window_share_off, self.mixture.steps
        );
        text
    }
}

/// Appends the figures of one way; `time` is that of its steps over that of balanced ones.
fn line(text: &mut String, name: &str, figures: &Figures, time: f64) {
    let _ = write!(
        text,
        "{name:<20} {:>8.4} {:>7.4} {:>7.4} {:>7.4} {:>8.4} {:>8.4} {:>7.3}",
        figures.slice_imbalance_mean,
        figures.slice_imbalance_p99,
        figures.row_imbalance_mean,
        figures.row_imbalance_p99,
        figures.step_imbalance,
        figures.fill,
        time,
    );
    text.push('\n');
}

fn balanced(text: &mut String, name: &str, balanced: &BalancedFigures) {
    line(text, name, &balanced.figures, 1.0);
    text.pop();
    let _ = writeln!(
        text,
        " {:>5} {:>6.0} M",
        balanced.late_windows_max,
        balanced.tokens_per_second / 1e6
    );
}
