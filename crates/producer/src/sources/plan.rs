//! A source of several as it is read: its orders, and the settings of its files.

use std::sync::{Arc, PoisonError, RwLock};

use batchweave_core::order::{Blocks, FileShape, Portion, Position, Shuffle, SourceOrder};

use super::{InputFile, InputList, ReadOptions, ShapeError, shapes};
use crate::progress::SourcePosition;

/// A source, ready to be read from any position.
#[derive(Debug)]
pub(crate) struct SourcePlan {
    name: String,
    /// The order of all passes; of a source that is followed one for each growth, which counts as a pass.
    orders: RwLock<Vec<Arc<SourceOrder>>>,
    pub(crate) options: Arc<ReadOptions>,
    /// Number of passes; 0 repeats them for ever.
    pub(crate) passes: u64,
    shuffle: Option<Shuffle>,
    /// Files that appear later join it.
    pub(crate) follows: bool,
}

impl SourcePlan {
    pub(crate) fn new(
        name: &str,
        orders: Vec<SourceOrder>,
        (options, shuffle): (Arc<ReadOptions>, Option<Shuffle>),
        (passes, follows): (u64, bool),
    ) -> Self {
        Self {
            name: name.to_owned(),
            orders: RwLock::new(orders.into_iter().map(Arc::new).collect()),
            options,
            passes,
            shuffle,
            follows,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes of its window; 0 without shuffle.
    pub(crate) fn window(&self) -> u64 {
        self.shuffle.map_or(0, |shuffle| shuffle.window)
    }

    /// Returns the order of the next growth: the files of `list` from index `from` on, in whose pins it notes how documents
    /// are numbered.
    pub(crate) async fn plan_growth(
        &self,
        list: &mut InputList,
        from: usize,
    ) -> Result<SourceOrder, ShapeError> {
        let files: Vec<_> = list.files.iter().cloned().enumerate().skip(from).collect();
        let blocks = plan_blocks(&files, &self.options, list).await?;
        Ok(SourceOrder::new(
            &self.name,
            blocks,
            self.shuffle,
            Portion::ALL,
        ))
    }

    /// Returns the order of `pass`; `None` for a growth that has not come yet.
    pub(crate) fn order(&self, pass: u64) -> Option<Arc<SourceOrder>> {
        let orders = self.orders.read().unwrap_or_else(PoisonError::into_inner);
        let growth = if self.follows { pass } else { 0 };
        orders.get(usize::try_from(growth).ok()?).cloned()
    }

    /// Returns the number of growths that have come, the first list included.
    pub(crate) fn growths(&self) -> u64 {
        self.orders
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len() as u64
    }

    /// Adds the order of the next growth.
    pub(crate) fn grow(&self, order: SourceOrder) {
        let mut orders = self.orders.write().unwrap_or_else(PoisonError::into_inner);
        orders.push(Arc::new(order));
    }

    /// Returns the progress at `at`, by whole groups.
    pub(crate) fn progress(&self, at: Position) -> SourcePosition {
        let own = |pass| self.order(pass).map_or(0, |order| own_bytes(&order));
        let part = self.order(at.pass).map_or(0, |order| {
            let groups = order.groups().max(1);
            u128::from(own_bytes(&order)) * u128::from(at.group) / u128::from(groups)
        }) as u64;
        let name = self.name.clone();
        if self.follows {
            let whole: u64 = (0..at.pass.min(self.growths())).map(own).sum();
            return SourcePosition {
                name,
                pass: (0, None),
                bytes: whole.saturating_add(part),
                total: None,
            };
        }
        let endless = self.passes == 0;
        let whole = if endless {
            at.pass
        } else {
            at.pass.min(self.passes)
        };
        let part = if endless || at.pass < self.passes {
            part
        } else {
            0
        };
        SourcePosition {
            name,
            pass: (whole, (!endless).then_some(self.passes)),
            bytes: whole.saturating_mul(own(0)).saturating_add(part),
            total: (!endless).then(|| self.passes.saturating_mul(own(0))),
        }
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
