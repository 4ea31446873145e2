//! Shapes, windows and documents that are shown beside the goals: few slices, windows of other sizes, pairs, and a mixture
//! of two sources.

use batchweave_console::CliError;
use batchweave_core::balance::BalanceSettings;
use serde::Serialize;

use super::lengths::Corpus;
use super::measures::mean;
use super::windows::Windows;
use super::{BalanceArgs, BalancedFigures, balanced, documents};

/// Windows that are compared.
const WINDOWS: [u32; 5] = [1, 2, 4, 8, 16];
/// The share of the first source in the tokens of a mixture, in tenths.
const SHARE: u64 = 7;

/// The figures of other settings.
#[derive(Debug, Serialize)]
pub(super) struct VariantReport {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) balanced: BalancedFigures,
}

/// The share of instructions, which are 70 % of the tokens beside code and books.
#[derive(Debug, Serialize)]
pub(super) struct MixtureReport {
    /// The mean difference of a batch's share.
    pub(super) batch_share_off: f64,
    /// The mean difference of a window's share.
    pub(super) window_share_off: f64,
    pub(super) steps: usize,
}

pub(super) fn measure(
    args: &BalanceArgs,
    settings: &BalanceSettings,
) -> Result<Vec<VariantReport>, CliError> {
    let small = BalanceSettings {
        slices: 8,
        micro_batches: 1,
        tokens: 8192,
        ..*settings
    };
    let mut variants = vec![("sft, 8 x 1 x 8192".to_owned(), small, Corpus::Sft)];
    for window in WINDOWS {
        let settings = BalanceSettings {
            window,
            ..*settings
        };
        variants.push((format!("sft, window {window}"), settings, Corpus::Sft));
    }
    variants.push(("pairs".to_owned(), *settings, Corpus::Pairs));
    let measured = variants.into_iter().map(|(name, settings, corpus)| {
        let args = BalanceArgs {
            tokens: settings.tokens,
            ..args.clone()
        };
        let (balanced, _) = balanced(&args, &settings, documents(&args, corpus)?)?;
        Ok(VariantReport { name, balanced })
    });
    measured.collect()
}

/// Arranges a mixture of two sources, drawn in exact shares.
pub(super) fn mixture(
    args: &BalanceArgs,
    settings: &BalanceSettings,
) -> Result<MixtureReport, CliError> {
    let mut sources = [
        documents(args, Corpus::Sft)?,
        documents(args, Corpus::CodeBooks)?,
    ];
    let mut given = [0_u64; 2];
    let mut windows = Windows::new(*settings);
    let (mut batches, mut whole) = (Vec::new(), Vec::new());
    let off = |share: f64| (share - SHARE as f64 / 10.0).abs();
    while windows.steps < args.steps as usize {
        let window = windows.next(|| {
            let source = usize::from(given[0] * (10 - SHARE) > given[1] * SHARE);
            let raw = sources[source].draw();
            given[source] += u64::from(raw.tokens);
            Ok((sources[source].pieces(raw)?, source))
        })?;
        let shares = window.shares();
        batches.extend(shares.iter().copied().map(off));
        whole.push(off(mean(&shares)));
    }
    Ok(MixtureReport {
        batch_share_off: mean(&batches),
        window_share_off: mean(&whole),
        steps: windows.steps,
    })
}
