//! A source as it is read: its order, and the settings of its files.

use std::sync::{Arc, PoisonError, RwLock};

use batchweave_core::order::{Blocks, FileShape, Portion, Position, Shuffle, SourceOrder};

use super::{InputFile, InputList, ReadOptions, ShapeError, shapes};
use crate::progress::SourcePosition;

/// A source, ready to be read from any position.
#[derive(Debug)]
pub struct SourcePlan {
    name: String,
    order: ReadOrder,
    pub(crate) options: Arc<ReadOptions>,
    /// Number of passes; 0 repeats them for ever.
    pub(crate) passes: u64,
    /// Files that appear later join it.
    pub(crate) follows: bool,
}

/// The order in which a source is read.
#[derive(Debug)]
pub(crate) enum ReadOrder {
    /// Unit after unit, file after file. Files that appear later are read at the end of the only pass.
    Files,
    /// Block after block, shuffled or in the order of the files.
    Blocks(BlockOrders),
}

/// The orders of the blocks of a source.
#[derive(Debug)]
pub(crate) struct BlockOrders {
    /// The order of all passes; of a source that is followed one for each growth, which counts as a pass.
    orders: RwLock<Vec<Arc<SourceOrder>>>,
    shuffle: Option<Shuffle>,
}

impl BlockOrders {
    pub(crate) fn new(orders: Vec<SourceOrder>, shuffle: Option<Shuffle>) -> Self {
        Self {
            orders: RwLock::new(orders.into_iter().map(Arc::new).collect()),
            shuffle,
        }
    }
}

impl SourcePlan {
    /// Returns the plan of the source `name`, which is empty for the one of `[source]`.
    pub(crate) fn new(
        name: &str,
        order: ReadOrder,
        options: Arc<ReadOptions>,
        (passes, follows): (u64, bool),
    ) -> Self {
        Self {
            name: name.to_owned(),
            order,
            options,
            passes,
            follows,
        }
    }

    /// Returns the plan of files without a name, in their order, for this number of passes.
    pub fn of_files(options: ReadOptions, passes: u64) -> Self {
        Self::new("", ReadOrder::Files, Arc::new(options), (passes, false))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the source is read in the order of its files.
    pub(crate) fn is_in_file_order(&self) -> bool {
        matches!(self.order, ReadOrder::Files)
    }

    /// Returns whether a file is this source's.
    pub(crate) fn holds(&self, file: &InputFile) -> bool {
        file.pin.source.as_deref().unwrap_or_default() == self.name
    }

    /// Returns the bytes of its window; 0 without shuffle.
    pub(crate) fn window(&self) -> u64 {
        let shuffle = match &self.order {
            ReadOrder::Files => None,
            ReadOrder::Blocks(blocks) => blocks.shuffle,
        };
        shuffle.map_or(0, |shuffle| shuffle.window)
    }

    /// Notes in `list` that the files from index `from` on are the next growth of this source, and how their documents are
    /// numbered. Returns their order, for [`Self::grow`]; `None` in the order of the files.
    pub(crate) async fn plan_growth(
        &self,
        list: &mut InputList,
        from: usize,
    ) -> Result<Option<SourceOrder>, ShapeError> {
        let ReadOrder::Blocks(blocks) = &self.order else {
            return Ok(None);
        };
        for file in list.files.iter_mut().skip(from) {
            file.pin.growth = blocks.growths();
        }
        let files: Vec<_> = list.files.iter().cloned().enumerate().skip(from).collect();
        let planned = plan_blocks(&files, &self.options, list).await?;
        let (shuffle, all) = (blocks.shuffle, Portion::ALL);
        Ok(Some(SourceOrder::new(&self.name, planned, shuffle, all)))
    }

    /// Returns the order of the blocks of `pass`; `None` for a growth that has not come yet, and in the order of the files.
    pub(crate) fn blocks(&self, pass: u64) -> Option<Arc<SourceOrder>> {
        let ReadOrder::Blocks(blocks) = &self.order else {
            return None;
        };
        let orders = blocks.orders.read().unwrap_or_else(PoisonError::into_inner);
        let growth = if self.follows { pass } else { 0 };
        orders.get(usize::try_from(growth).ok()?).cloned()
    }

    /// Adds the order of the next growth.
    pub(crate) fn grow(&self, order: SourceOrder) {
        if let ReadOrder::Blocks(blocks) = &self.order {
            let orders = blocks.orders.write();
            let mut orders = orders.unwrap_or_else(PoisonError::into_inner);
            orders.push(Arc::new(order));
        }
    }

    /// Returns the progress at `at` in `list`, by whole groups of blocks or by files.
    pub(crate) fn progress(&self, at: Position, list: &InputList) -> SourcePosition {
        let (before, total) = match &self.order {
            ReadOrder::Files => self.bytes_by_files(at, list),
            ReadOrder::Blocks(blocks) => self.bytes_by_blocks(at, blocks.growths()),
        };
        let endless = self.passes == 0 || self.follows;
        let pass = match self.passes {
            _ if self.follows => 0,
            0 => at.pass,
            passes => at.pass.min(passes),
        };
        SourcePosition {
            name: self.name.clone(),
            pass: (pass, (!endless).then_some(self.passes)),
            bytes: before,
            total: (!endless).then(|| self.passes.saturating_mul(total)),
        }
    }

    /// Returns the bytes before `at` over all passes, and those of a pass.
    fn bytes_by_files(&self, at: Position, list: &InputList) -> (u64, u64) {
        let own = list.files.iter().enumerate().filter(|(_, f)| self.holds(f));
        let own: Vec<(u64, u64)> = own.map(|(n, f)| (n as u64, f.pin.size)).collect();
        let whole: u64 = own.iter().map(|(_, size)| size).sum();
        let passes = if self.passes == 0 || self.follows {
            at.pass
        } else {
            at.pass.min(self.passes)
        };
        let part = own.iter().map(|(n, size)| match n.cmp(&at.group) {
            std::cmp::Ordering::Less => *size,
            std::cmp::Ordering::Equal => at.number.min(*size),
            std::cmp::Ordering::Greater => 0,
        });
        let part = if self.is_over(at) { 0 } else { part.sum() };
        (passes.saturating_mul(whole).saturating_add(part), whole)
    }

    /// Returns the same by whole groups; each growth is a pass.
    fn bytes_by_blocks(&self, at: Position, growths: u64) -> (u64, u64) {
        let own = |pass| self.blocks(pass).map_or(0, |order| own_bytes(&order));
        let part = self.blocks(at.pass).map_or(0, |order| {
            let groups = order.groups().max(1);
            u128::from(own_bytes(&order)) * u128::from(at.group) / u128::from(groups)
        }) as u64;
        if self.follows {
            let whole: u64 = (0..at.pass.min(growths)).map(own).sum();
            return (whole.saturating_add(part), 0);
        }
        let whole = match self.passes {
            0 => at.pass,
            passes => at.pass.min(passes),
        };
        let part = if self.is_over(at) { 0 } else { part };
        (whole.saturating_mul(own(0)).saturating_add(part), own(0))
    }

    /// Returns whether all passes of a source with an end are over.
    fn is_over(&self, at: Position) -> bool {
        self.passes > 0 && !self.follows && at.pass >= self.passes
    }
}

impl BlockOrders {
    /// Returns the number of growths that have come, the first list included.
    fn growths(&self) -> u64 {
        let orders = self.orders.read().unwrap_or_else(PoisonError::into_inner);
        orders.len() as u64
    }
}

/// Returns about how many bytes of a pass are this producer's.
fn own_bytes(order: &SourceOrder) -> u64 {
    let blocks = order.blocks();
    let own = u128::from(blocks.bytes()) * u128::from(order.positions());
    (own / u128::from(blocks.len().max(1))) as u64
}

/// Divides `files`, with their indices in `list`, into blocks, and notes in the pins how documents are numbered.
pub(crate) async fn plan_blocks(
    files: &[(usize, InputFile)],
    options: &Arc<ReadOptions>,
    list: &mut InputList,
) -> Result<Blocks, ShapeError> {
    let all = files.iter().map(|(_, file)| file.clone()).collect();
    let shapes = shapes(all, options).await?;
    for ((n, _), shape) in files.iter().zip(&shapes) {
        list.files[*n].pin.by_byte = *shape == FileShape::Lines;
    }
    let shaped = files.iter().zip(shapes);
    Ok(Blocks::plan(shaped.map(|((n, file), shape)| {
        (*n as u32, file.pin.size, shape)
    })))
}
