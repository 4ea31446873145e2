//! The entries, records and manifests that states refer to by number. Each pair of a manifest and a
//! record goes through the product's fold once; the result is cached.

use std::collections::HashMap;
use std::sync::Arc;

use batchweave_core::ids::{CommitId, Hash, StreamId};
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Hints, Manifest, Record, Void, Writer};
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};

use crate::config::Config;
use crate::facts::{Facts, Fold};
use crate::guard::Guard;
use crate::numbers::{EntryNo, Node, RecordNo};
use crate::property::{Broken, Property};
use crate::spec::{self, Object, Spec};
use crate::state::MarksAndProgress;

/// A manifest and its facts.
#[derive(Debug)]
pub struct NodeInfo {
    manifest: Arc<Manifest>,
    parent: Node,
    record: RecordNo,
    pub facts: Facts,
    /// The property that its last record breaks.
    pub broken: Option<Broken>,
}

/// A record with its bytes.
#[derive(Debug, Clone)]
pub struct RecordInfo {
    bytes: Vec<u8>,
    pub version: u8,
    pub writer: u8,
    pub entries: Vec<EntryNo>,
}

/// The input of `build`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Draft {
    /// The manifest before the record.
    pub after: Node,
    pub writer: u8,
    /// Distinguishes records of the same writer at the same version, like the random part of a
    /// commit id.
    pub salt: u8,
    pub entries: Vec<EntryNo>,
}

/// The product's results for a list of entries.
type Validities = Vec<Result<Validity, Void>>;

/// The tables of a configuration.
#[derive(Debug)]
pub struct Tables {
    config: Config,
    nodes: Vec<NodeInfo>,
    folded: HashMap<(Node, RecordNo), Node>,
    records: Vec<RecordInfo>,
    drafts: HashMap<Draft, RecordNo>,
    specs: Vec<(Spec, Entry)>,
    spec_numbers: HashMap<Spec, EntryNo>,
    validated: HashMap<(Node, Vec<EntryNo>), Validities>,
    objects: Vec<Object>,
    /// The rule that is removed from the fold.
    lacks: Option<Guard>,
    /// The watermarks that the product would publish.
    pub due: HashMap<(Node, MarksAndProgress), Option<u8>>,
    /// The objects that the product may delete.
    pub dead: HashMap<(Node, u8), bool>,
    /// The persons' watermarks that the product accepts.
    pub asked: HashMap<(Node, MarksAndProgress, u8), bool>,
}

impl Tables {
    /// Creates tables in which node 0 is the manifest of an empty log.
    pub fn new(config: Config, without: Option<Guard>) -> Self {
        let stream = stream(&config);
        let json = stream.to_json();
        let first = NodeInfo {
            manifest: Arc::new(Manifest::new(stream, &json)),
            parent: 0,
            record: 0,
            facts: Facts::default(),
            broken: None,
        };
        let none = RecordInfo {
            bytes: Vec::new(),
            version: 0,
            writer: 0,
            entries: Vec::new(),
        };
        Self {
            config,
            nodes: vec![first],
            folded: HashMap::new(),
            records: vec![none],
            drafts: HashMap::new(),
            specs: Vec::new(),
            spec_numbers: HashMap::new(),
            validated: HashMap::new(),
            objects: Vec::new(),
            lacks: without.filter(|guard| guard.is_of_fold()),
            due: HashMap::new(),
            dead: HashMap::new(),
            asked: HashMap::new(),
        }
    }

    /// Returns the product's manifest.
    pub fn manifest(&self, node: Node) -> &Manifest {
        &self.node(node).manifest
    }

    /// Returns the bounds of the model.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns a manifest and its facts.
    pub fn node(&self, node: Node) -> &NodeInfo {
        &self.nodes[node as usize]
    }

    /// Returns the facts of a manifest.
    pub fn facts(&self, node: Node) -> &Facts {
        &self.node(node).facts
    }

    /// Returns a record by number.
    pub fn record(&self, record: RecordNo) -> &RecordInfo {
        &self.records[record as usize]
    }

    /// Returns an entry by number.
    pub fn spec(&self, entry: EntryNo) -> Spec {
        self.specs[entry as usize - 1].0
    }

    /// Returns the number of different logs and records.
    pub fn sizes(&self) -> (usize, usize) {
        (self.nodes.len(), self.records.len())
    }

    /// Returns the record at `version` of the log that `node` stands for.
    pub fn at(&self, node: Node, version: u8) -> Option<RecordNo> {
        let mut at = self.node(node);
        if version >= at.facts.length {
            return None;
        }
        while at.facts.length > version + 1 {
            at = self.node(at.parent);
        }
        Some(at.record)
    }

    /// Returns the number of an entry.
    pub fn entry(&mut self, spec: Spec) -> EntryNo {
        if let Some(&number) = self.spec_numbers.get(&spec) {
            return number;
        }
        let entry = spec.entry(self.config.object_split());
        let Some(entry) = entry else {
            unreachable!("names of the model are valid");
        };
        self.specs.push((spec, entry));
        let number = self.specs.len() as EntryNo;
        self.spec_numbers.insert(spec, number);
        number
    }

    /// Returns the number of a data object.
    pub fn object(&mut self, object: Object) -> u8 {
        if let Some(at) = self.objects.iter().position(|known| *known == object) {
            return at as u8;
        }
        assert!(self.objects.len() < 64, "objects are bits of a word");
        self.objects.push(object);
        self.objects.len() as u8 - 1
    }

    /// Returns all objects known so far.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Returns the product's result for entries as one record.
    pub fn validate(&mut self, node: Node, entries: &[EntryNo]) -> &[Result<Validity, Void>] {
        let key = (node, entries.to_vec());
        let (nodes, specs) = (&self.nodes, &self.specs);
        self.validated.entry(key).or_insert_with(|| {
            let real: Vec<_> = entries
                .iter()
                .map(|&number| specs[number as usize - 1].1.clone())
                .collect();
            nodes[node as usize].manifest.validate_all(&real)
        })
    }

    /// Returns the record that a writer builds, whether or not its entries are valid.
    pub fn build(&mut self, draft: Draft) -> RecordNo {
        if let Some(&number) = self.drafts.get(&draft) {
            return number;
        }
        let manifest = &self.node(draft.after).manifest;
        let version = manifest.next_version();
        let link = (manifest.prev(), manifest.view());
        let bytes = self.bytes(&draft, version, link);
        self.add(draft, version as u8, bytes)
    }

    /// Returns a record for the version after `sent`, for writers without a guard that take `sent`
    /// for committed.
    pub fn build_beyond(&mut self, sent: RecordNo, draft: Draft) -> RecordNo {
        if let Some(&number) = self.drafts.get(&draft) {
            return number;
        }
        let mut believed = self.node(draft.after).manifest.as_ref().clone();
        let sent = self.record(sent);
        let version = sent.version + 1;
        // The fold that the writer would have, had `sent` been committed.
        let _ = believed.fold(&sent.bytes);
        let link = (Hash::sha256(&sent.bytes), believed.view());
        let bytes = self.bytes(&draft, version.into(), link);
        self.add(draft, version, bytes)
    }

    fn bytes(&self, draft: &Draft, version: u64, (prev, view): (Hash, Hash)) -> Vec<u8> {
        let mut commit = [0; 16];
        commit[..3].copy_from_slice(&[draft.writer, version as u8, draft.salt]);
        let entries = draft.entries.iter();
        let record = Record {
            format: 1,
            stream: stream_id(),
            version,
            prev,
            view,
            commit: CommitId(commit),
            writer: Writer {
                name: format!("process-{}", draft.writer),
                epoch: 0,
            },
            hints: Hints::default(),
            entries: entries
                .map(|&number| self.specs[number as usize - 1].1.clone())
                .collect(),
        };
        record.to_json()
    }

    fn add(&mut self, draft: Draft, version: u8, bytes: Vec<u8>) -> RecordNo {
        self.records.push(RecordInfo {
            bytes,
            version,
            writer: draft.writer,
            entries: draft.entries.clone(),
        });
        let number = self.records.len() as RecordNo - 1;
        self.drafts.insert(draft, number);
        number
    }

    /// Folds a record with the product's fold.
    pub fn fold(&mut self, node: Node, record: RecordNo) -> Node {
        if let Some(&after) = self.folded.get(&(node, record)) {
            return after;
        }
        let before = self.node(node);
        let mut manifest = Manifest::clone(&before.manifest);
        let info = self.record(record);
        let specs: Vec<_> = info.entries.iter().map(|&entry| self.spec(entry)).collect();
        let (facts, broken) = match manifest.fold(&info.bytes) {
            Ok(folded) => {
                let fold = Fold {
                    config: &self.config,
                    lacks: self.lacks,
                    manifest: &manifest,
                    folded: &folded,
                };
                before.facts.after(&fold, &specs)
            }
            Err(error) => {
                let mut facts = before.facts.clone();
                facts.length += 1;
                let broken = Broken::new(Property::Fold, error.to_string());
                (facts, Some(broken))
            }
        };
        self.nodes.push(NodeInfo {
            manifest: Arc::new(manifest),
            parent: node,
            record,
            facts,
            broken,
        });
        let after = self.nodes.len() as Node - 1;
        self.folded.insert((node, record), after);
        after
    }
}

fn stream_id() -> StreamId {
    StreamId::from_random([7; 16])
}

fn stream(config: &Config) -> StreamConfig {
    let names = (0..config.producers).filter_map(spec::producer);
    StreamConfig {
        format: 1,
        stream_id: stream_id(),
        slices: spec::SLICES,
        order: if config.lanes {
            StreamOrder::Lanes
        } else {
            StreamOrder::Arrival
        },
        producers: if config.lanes {
            names.collect()
        } else {
            Vec::new()
        },
        tokenizer: TokenizerId {
            name: "bytes".into(),
            fingerprint: Hash::sha256(b"bytes"),
        },
        seq_len: 8,
        rows_per_slice: 1,
        created: "2026-11-21T00:00:00Z".into(),
        form: None,
        parent: None,
    }
}
