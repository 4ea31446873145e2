//! Everything that states refer to by number: entries, records, and manifests. Each different pair
//! of a manifest and a record goes through the product's fold once; the result is remembered.

use std::collections::HashMap;
use std::sync::Arc;

use batchweave_core::ids::{CommitId, Hash, StreamId};
use batchweave_core::manifest::rules::Validity;
use batchweave_core::manifest::{Entry, Hints, Manifest, Record, Void, Writer};
use batchweave_core::stream::{StreamConfig, StreamOrder, TokenizerId};

use crate::config::Config;
use crate::facts::{Facts, Fold};
use crate::guard::Guard;
use crate::property::{Broken, Property};
use crate::signs::Signs;
use crate::spec::{self, Object, Spec};

/// A manifest: as records are chained by hash, it stands for a whole log.
pub type Node = u32;
/// A record's bytes. 0 is none.
pub type RecordNo = u32;
/// An entry. 0 is none.
pub type EntryNo = u32;

/// A manifest and what is known of it.
#[derive(Debug)]
pub struct NodeInfo {
    manifest: Arc<Manifest>,
    parent: Node,
    record: RecordNo,
    /// In short.
    pub facts: Facts,
    /// What its last record breaks, were it in the true log.
    pub broken: Option<Broken>,
}

/// A record.
#[derive(Debug, Clone)]
pub struct RecordInfo {
    bytes: Vec<u8>,
    /// Its version.
    pub version: u8,
    /// Which process wrote it.
    pub writer: u8,
    /// Its entries.
    pub entries: Vec<EntryNo>,
}

/// What is asked of `build`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Draft {
    /// The manifest that the record follows.
    pub after: Node,
    /// The process that writes it.
    pub writer: u8,
    /// Tells records of the same writer at the same place apart; the random part of a commit id.
    pub salt: u8,
    /// Its entries.
    pub entries: Vec<EntryNo>,
}

/// The product's verdicts on entries.
type Verdicts = Vec<Result<Validity, Void>>;

/// See the module.
#[derive(Debug)]
pub struct Tables {
    config: Config,
    nodes: Vec<NodeInfo>,
    folded: HashMap<(Node, RecordNo), Node>,
    records: Vec<RecordInfo>,
    drafts: HashMap<Draft, RecordNo>,
    specs: Vec<(Spec, Entry)>,
    spec_numbers: HashMap<Spec, EntryNo>,
    judged: HashMap<(Node, Vec<EntryNo>), Verdicts>,
    objects: Vec<Object>,
    /// The rule that the fold lacks.
    lacks: Option<Guard>,
    /// What the product says of watermarks.
    pub due: HashMap<(Node, Signs), Option<u8>>,
    /// Which objects it may delete.
    pub dead: HashMap<(Node, u8), bool>,
    /// And of a person's wish.
    pub asked: HashMap<(Node, Signs, u8), bool>,
}

impl Tables {
    /// Node 0 is the manifest of an empty log.
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
            judged: HashMap::new(),
            objects: Vec::new(),
            lacks: without.filter(|guard| guard.is_of_fold()),
            due: HashMap::new(),
            dead: HashMap::new(),
            asked: HashMap::new(),
        }
    }

    /// The product's manifest.
    pub fn manifest(&self, node: Node) -> &Manifest {
        &self.node(node).manifest
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// A manifest.
    pub fn node(&self, node: Node) -> &NodeInfo {
        &self.nodes[node as usize]
    }

    /// A manifest in short.
    pub fn facts(&self, node: Node) -> &Facts {
        &self.node(node).facts
    }

    /// A record.
    pub fn record(&self, record: RecordNo) -> &RecordInfo {
        &self.records[record as usize]
    }

    /// An entry in short.
    pub fn spec(&self, entry: EntryNo) -> Spec {
        self.specs[entry as usize - 1].0
    }

    /// How many different logs and records there were.
    pub fn sizes(&self) -> (usize, usize) {
        (self.nodes.len(), self.records.len())
    }

    /// The record at `version` of the log that `node` stands for.
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

    /// The number of an entry.
    pub fn entry(&mut self, spec: Spec) -> EntryNo {
        if let Some(&number) = self.spec_numbers.get(&spec) {
            return number;
        }
        let entry = spec.entry(self.config.cut());
        let Some(entry) = entry else {
            unreachable!("names of the model are valid");
        };
        self.specs.push((spec, entry));
        let number = self.specs.len() as EntryNo;
        self.spec_numbers.insert(spec, number);
        number
    }

    /// The number of an object of data.
    pub fn object(&mut self, object: Object) -> u8 {
        if let Some(at) = self.objects.iter().position(|known| *known == object) {
            return at as u8;
        }
        assert!(self.objects.len() < 64, "objects are bits of a word");
        self.objects.push(object);
        self.objects.len() as u8 - 1
    }

    /// All objects known so far.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// The product's verdict on entries as one record.
    pub fn judge(&mut self, node: Node, entries: &[EntryNo]) -> &[Result<Validity, Void>] {
        let key = (node, entries.to_vec());
        let (nodes, specs) = (&self.nodes, &self.specs);
        self.judged.entry(key).or_insert_with(|| {
            let real: Vec<_> = entries
                .iter()
                .map(|&number| specs[number as usize - 1].1.clone())
                .collect();
            nodes[node as usize].manifest.validate_all(&real)
        })
    }

    /// The record that a writer builds, whether or not its entries are valid.
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

    /// For writers without guards: a record for the version after the one of `sent`, by someone who
    /// takes `sent` for the record there.
    pub fn build_beyond(&mut self, sent: RecordNo, draft: Draft) -> RecordNo {
        if let Some(&number) = self.drafts.get(&draft) {
            return number;
        }
        let mut believed = self.node(draft.after).manifest.as_ref().clone();
        let sent = self.record(sent);
        let version = sent.version + 1;
        // What it would have folded, had it been right.
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

    /// The product's fold.
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
    }
}
