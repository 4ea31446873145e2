//! Numbers of manifests, records and entries, which `tables` assigns.

/// A manifest. As records are chained by hash, it stands for a whole log.
pub type Node = u32;
/// The number of a record; 0 is none.
pub type RecordNo = u32;
/// The number of an entry; 0 is none.
pub type EntryNo = u32;
