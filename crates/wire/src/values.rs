//! The values of a step in a `report`: its loss, by source, and by row or document.

use crate::WireError;
use crate::bytes::{Builder, Fields};

/// Values that one report may carry.
pub const VALUES_MAX: usize = 512;
/// Sources of one step.
pub const VALUE_SOURCES_MAX: usize = 256;
/// Rows or documents of one step.
pub const VALUE_DETAILS_MAX: usize = 7168;

/// The largest values fit in a message beside one state with its reason.
const _: () = assert!(
    crate::HEADER_BYTES
        + 16
        + 24
        + crate::REASON_BYTES_MAX
        + VALUE_BYTES
        + VALUE_SOURCES_MAX * SOURCE_BYTES
        + VALUE_DETAILS_MAX * DETAIL_BYTES
        <= crate::MESSAGE_BYTES_MAX
);

const VALUE_BYTES: usize = 40;
const SOURCE_BYTES: usize = 12;
const DETAIL_BYTES: usize = 8;
const KINDS: u32 = 3;
const PART: u32 = 4;
const DETAILS_DROPPED: u32 = 8;
const SOURCES_DROPPED: u32 = 16;

/// The parts of a slice that details are about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DetailOf {
    #[default]
    None,
    Row,
    Document,
}

/// The loss of one source: its number, the sum over its tokens, and their number or weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceLoss {
    pub source: u16,
    pub sum: f32,
    pub weight: f32,
}

/// The loss of one row or document: the mean over its tokens, and their number or weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DetailLoss {
    pub mean: f32,
    pub weight: f32,
}

/// The values of one trained step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepValues {
    pub step: u64,
    pub of: DetailOf,
    /// The rank has a part of the coordinate's tokens.
    pub part: bool,
    /// The rank lacked the room for the details, or the sources.
    pub details_dropped: bool,
    pub sources_dropped: bool,
    /// Tokens whose loss is NaN or infinite, which are in no sum.
    pub nonfinite: u32,
    pub sum: f64,
    pub weight: f64,
    /// In the order of their numbers, each once.
    pub sources: Vec<SourceLoss>,
    pub details: Vec<DetailLoss>,
}

impl StepValues {
    /// Returns the bytes of its part of a message.
    pub fn bytes(&self) -> usize {
        VALUE_BYTES + self.sources.len() * SOURCE_BYTES + self.details.len() * DETAIL_BYTES
    }

    /// Checks what a peer may send.
    pub fn check(&self) -> Result<(), String> {
        let step = self.step;
        let (sources, details) = (self.sources.len(), self.details.len());
        if sources > VALUE_SOURCES_MAX || details > VALUE_DETAILS_MAX {
            return Err(format!(
                "step {step} has {sources} sources and {details} rows or documents, at most {VALUE_SOURCES_MAX} and \
                 {VALUE_DETAILS_MAX} are allowed"
            ));
        }
        if self.of == DetailOf::None && details > 0 {
            return Err(format!("step {step} has details of no kind"));
        }
        let in_order = |pair: &[SourceLoss]| pair[0].source < pair[1].source;
        if !self.sources.windows(2).all(in_order) {
            return Err(format!(
                "the sources of step {step} are not in order, each once"
            ));
        }
        let sources = self.sources.iter().map(|one| (one.sum, one.weight));
        let details = self.details.iter().map(|one| (one.mean, one.weight));
        let is_loss = |(loss, weight): (f32, f32)| {
            loss.is_finite() && weight.is_finite() && weight.is_sign_positive()
        };
        let is_sum = self.sum.is_finite() && (0.0..f64::from(f32::MAX)).contains(&self.weight);
        if !is_sum || !sources.chain(details).all(is_loss) {
            return Err(format!(
                "step {step} has a sum that is not finite, or a weight that is not finite and at least 0"
            ));
        }
        Ok(())
    }

    pub(crate) fn encode(&self, mut message: Builder) -> Result<Builder, WireError> {
        self.check().map_err(|why| WireError::body("report", why))?;
        let flag = |set, bit| if set { bit } else { 0 };
        let kind = match self.of {
            DetailOf::None => 0,
            DetailOf::Row => 1,
            DetailOf::Document => 2,
        } | flag(self.part, PART)
            | flag(self.details_dropped, DETAILS_DROPPED)
            | flag(self.sources_dropped, SOURCES_DROPPED);
        message = message.u64(self.step);
        message = message
            .u32(self.sources.len() as u32)
            .u32(self.details.len() as u32);
        message = message.u32(kind).u32(self.nonfinite);
        message = message.u64(self.sum.to_bits()).u64(self.weight.to_bits());
        for one in &self.sources {
            message = message.u32(one.source.into());
            message = message.u32(one.sum.to_bits()).u32(one.weight.to_bits());
        }
        for one in &self.details {
            message = message.u32(one.mean.to_bits()).u32(one.weight.to_bits());
        }
        Ok(message)
    }

    pub(crate) fn decode(f: &mut Fields<'_>) -> Result<Self, WireError> {
        let step = f.u64()?;
        let sources = f.count("sources", VALUE_SOURCES_MAX)?;
        let details = f.count("rows or documents", VALUE_DETAILS_MAX)?;
        let kind = f.u32()?;
        let of = match kind & KINDS {
            0 => DetailOf::None,
            1 => DetailOf::Row,
            2 => DetailOf::Document,
            _ => return Err(f.error(format!("step {step} has details of kind {kind}"))),
        };
        if kind & !(KINDS | PART | DETAILS_DROPPED | SOURCES_DROPPED) != 0 {
            return Err(f.error(format!("step {step} has details of kind {kind}")));
        }
        let mut values = Self {
            step,
            of,
            part: kind & PART != 0,
            details_dropped: kind & DETAILS_DROPPED != 0,
            sources_dropped: kind & SOURCES_DROPPED != 0,
            nonfinite: f.u32()?,
            sum: f64::from_bits(f.u64()?),
            weight: f64::from_bits(f.u64()?),
            sources: Vec::with_capacity(sources),
            details: Vec::with_capacity(details),
        };
        for _ in 0..sources {
            let number = f.u32()?;
            let Ok(source) = u16::try_from(number) else {
                return Err(f.error(format!("step {step} has a source {number}")));
            };
            let (sum, weight) = (f32::from_bits(f.u32()?), f32::from_bits(f.u32()?));
            values.sources.push(SourceLoss {
                source,
                sum,
                weight,
            });
        }
        for _ in 0..details {
            let (mean, weight) = (f32::from_bits(f.u32()?), f32::from_bits(f.u32()?));
            values.details.push(DetailLoss { mean, weight });
        }
        values.check().map_err(|why| f.error(why))?;
        Ok(values)
    }
}
