//! The settings of bins.

use batchweave_core::balance::{BalanceSettings, CostModel};

/// The settings that decide the bins.
#[derive(Debug, Clone)]
pub struct Balancing {
    pub settings: BalanceSettings,
    pub cost: CostModel,
    /// Bytes of an item of each array.
    pub item_bytes: Vec<u64>,
    /// Longer documents are divided.
    pub split: bool,
    /// Comes after each text.
    pub end: u32,
}
