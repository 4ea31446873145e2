//! The settings of an arrangement, and how many documents a window takes.

use super::Document;

/// A window is full at this share of its capacity, in hundredths: the rest is room to move documents in.
const FULL_HUNDREDTHS: u64 = 98;
/// Bins of a window: their numbers, and the tokens of all, are far below the largest whole numbers.
const BINS_MAX: u64 = 1 << 24;

/// The shape of batches and windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalanceSettings {
    pub slices: u32,
    /// Bins per slice and batch.
    pub micro_batches: u32,
    /// Capacity of a bin.
    pub tokens: u32,
    /// The most batches that are arranged together.
    pub window: u32,
    /// Documents may be dear without being long, so bins are filled by tokens and cost alike
    /// ([`counts_arrays`](super::CostModel::counts_arrays)).
    pub by_cost: bool,
}

/// Settings that describe no window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A setting of 0.
    #[error("{name} is 0: expected at least 1")]
    Zero { name: &'static str },
    /// More bins than a window may have.
    #[error(
        "a window of {window} x {slices} x {micro_batches} bins is too large: expected at most {BINS_MAX}"
    )]
    TooManyBins {
        window: u32,
        slices: u32,
        micro_batches: u32,
    },
}

impl BalanceSettings {
    /// Checks that the settings describe a window; [`arrange`](super::arrange) relies on it.
    pub fn check(&self) -> Result<(), SettingsError> {
        let numbers = [
            ("slices", self.slices),
            ("micro_batches", self.micro_batches),
            ("tokens", self.tokens),
            ("window", self.window),
        ];
        if let Some((name, _)) = numbers.into_iter().find(|(_, number)| *number == 0) {
            return Err(SettingsError::Zero { name });
        }
        let factors = [self.window, self.slices, self.micro_batches];
        let bins = factors
            .into_iter()
            .try_fold(1_u64, |bins, factor| bins.checked_mul(u64::from(factor)));
        if bins.is_none_or(|bins| bins > BINS_MAX) {
            return Err(SettingsError::TooManyBins {
                window: self.window,
                slices: self.slices,
                micro_batches: self.micro_batches,
            });
        }
        Ok(())
    }

    /// Returns the bins of a batch.
    pub fn bins(&self) -> usize {
        self.slices as usize * self.micro_batches as usize
    }

    /// Returns the tokens that fit into `batches` batches.
    fn capacity(&self, batches: u64) -> u64 {
        batches * self.bins() as u64 * u64::from(self.tokens)
    }

    /// Returns the tokens at which `batches` batches are full.
    fn full(&self, batches: u64) -> u64 {
        (self.capacity(batches) * FULL_HUNDREDTHS).div_ceil(100)
    }
}

/// Counts the documents of a window until it is full: the carried ones, then others in stream order.
#[derive(Debug, Clone, Copy)]
pub struct WindowFill {
    settings: BalanceSettings,
    batches: u64,
    room: u64,
    /// A document was refused.
    refused: bool,
}

impl WindowFill {
    /// Returns the counter of a whole window without documents.
    pub fn new(settings: &BalanceSettings) -> Self {
        Self::with_batches(settings, settings.window)
    }

    /// Returns the counter of a window of this number of batches.
    pub(super) fn with_batches(settings: &BalanceSettings, batches: u32) -> Self {
        Self {
            settings: *settings,
            batches: u64::from(batches),
            room: 0,
            refused: false,
        }
    }

    /// Counts the next document, if the window takes it. A full window takes none, nor does one whose capacity the
    /// document would exceed, so that the next window has room for all that this one carries. Carried documents are always
    /// taken.
    pub fn take(&mut self, document: &Document) -> bool {
        let room = self.room + document.room();
        let exceeds = self.room > 0 && room > self.settings.capacity(self.batches);
        if !document.carried && (exceeds || self.is_full()) {
            self.refused = true;
            return false;
        }
        self.room = room;
        true
    }

    /// Returns whether the window takes no more documents.
    pub fn is_full(&self) -> bool {
        self.refused || self.room >= self.settings.full(self.batches)
    }

    /// Returns the number of full batches that the documents make; that of the window, if it is full.
    pub fn batches(&self) -> u32 {
        let most = self.settings.window;
        let full = u32::try_from(self.room / self.settings.full(1)).unwrap_or(most);
        if self.is_full() { most } else { full.min(most) }
    }
}
