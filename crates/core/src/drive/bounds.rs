//! Bounds of shares: a floor above 0, a ceiling, and the largest change of one decision.

use super::error::DriveError;

/// Halvings until the shift of all shares is exact to the last bit.
const HALVINGS: usize = 200;

/// The bounds of the shares of the sources that a decision covers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// The least share, above 0, so that each source is heard again.
    pub floor: f64,
    /// The largest share of a source.
    pub ceiling: f64,
    /// The most by which a share changes; floor and ceiling go before it.
    pub step: f64,
}

impl Bounds {
    /// Checks that the bounds are numbers in their ranges.
    pub fn check(&self) -> Result<(), DriveError> {
        let Self {
            floor,
            ceiling,
            step,
        } = *self;
        let is_share = |x: f64| x > 0.0 && x <= 1.0;
        if !is_share(floor) || !is_share(ceiling) || floor > ceiling || !is_share(step) {
            return Err(DriveError::Bounds {
                floor,
                ceiling,
                step,
            });
        }
        Ok(())
    }

    /// Returns the shares within the bounds that are nearest to `wanted`, with the sum 1.
    pub fn apply(&self, wanted: &[f64], before: &[f64]) -> Result<Vec<f64>, DriveError> {
        let count = wanted.len() as f64;
        let (floor, ceiling) = (self.floor, self.ceiling);
        // One source alone has everything, whatever the ceiling.
        if wanted.len() == 1 {
            return Ok(vec![1.0]);
        }
        if count * floor > 1.0 || count * ceiling < 1.0 {
            return Err(DriveError::Infeasible {
                sources: wanted.len(),
                floor,
                ceiling,
            });
        }
        let near = |share: f64| {
            let least = (share - self.step).clamp(floor, ceiling);
            (least, (share + self.step).clamp(floor, ceiling))
        };
        let mut ranges: Vec<(f64, f64)> = before.iter().map(|share| near(*share)).collect();
        let sum = |of: fn(&(f64, f64)) -> f64| ranges.iter().map(of).sum::<f64>();
        // A rounding error apart, the shares before are within reach, unless floor or ceiling were different then.
        if sum(|range| range.0) > 1.0 || sum(|range| range.1) < 1.0 {
            ranges = vec![(floor, ceiling); wanted.len()];
        }
        Ok(nearest(wanted, &ranges))
    }
}

/// Shifts all shares by one number and cuts them to their ranges, so that their sum is 1.
fn nearest(wanted: &[f64], ranges: &[(f64, f64)]) -> Vec<f64> {
    let shifted = |shift: f64| -> Vec<f64> {
        let cut = |(share, range): (&f64, &(f64, f64))| (share + shift).clamp(range.0, range.1);
        wanted.iter().zip(ranges).map(cut).collect()
    };
    let (mut low, mut high) = (-1.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if shifted(middle).iter().sum::<f64>() < 1.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let shares = shifted(high);
    let sum: f64 = shares.iter().sum();
    shares.iter().map(|share| share / sum).collect()
}
