//! One block of organized output.

use std::ops::Range;

use bytes::Bytes;
use serde_json::json;
use store::{ResourceKey, StoreError, Versions as _};

use super::block_source::BlockSource;
use super::provenance::ProvenanceLookup;
use crate::plan::membership::PatientScope;
use crate::read::organized_output::collected_references::CollectedReferences;
use crate::read::selection::{Selection, SelectionError};

/// Number of resources in a page, for blocks that are read by reference.
const REFERENCE_PAGE: usize = 100;

/// A head, with the resources that belong to it.
pub(crate) struct OutputBlock<'a> {
    pub(super) source: BlockSource<'a>,
    /// Type and id of the head.
    pub(super) key: ResourceKey,
    pub(super) patients: PatientScope,
    /// `None` if the head has too many references.
    pub(super) collected: Option<&'a CollectedReferences>,
    /// Indexes of the references to this head among the collected ones.
    pub(super) references: Range<usize>,
}

impl OutputBlock<'_> {
    pub fn head_type(&self) -> &str {
        self.source.head_type
    }

    /// Base URL of the FHIR interface.
    pub fn fhir_base(&self) -> &str {
        &self.source.plan.fhir_base
    }

    /// The header line. It precedes the resources of the block in each file that contains them.
    pub fn header(&self) -> Vec<u8> {
        let reference = json!({ "reference": self.key.to_string() });
        let parameter = json!([{ "name": "header", "valueReference": reference }]);
        json!({ "resourceType": "Parameters", "parameter": parameter }).to_string().into_bytes()
    }

    /// A reader at the first resource of the block.
    pub fn lines(&self) -> BlockLines<'_> {
        BlockLines { block: self, stage: BlockStage::Head }
    }
}

/// Reads the resources of a block page by page.
pub(crate) struct BlockLines<'a> {
    block: &'a OutputBlock<'a>,
    stage: BlockStage<'a>,
}

enum BlockStage<'a> {
    Head,
    /// Reads this type of the job by compartment.
    Compartment(usize, Option<Selection<'a>>),
    /// Reads the Provenance of the compartment. The number is the index of the next type.
    Provenance(usize, ProvenanceLookup<'a>),
    /// Reads the collected references from this index.
    References(usize),
    /// Reads all resources of this type of the job and keeps those that refer to the head.
    FullPass(usize, Option<Selection<'a>>),
}

impl<'a> BlockLines<'a> {
    /// The next resources, or `None` at the end. A page may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<Bytes>>, SelectionError> {
        let block = self.block;
        let source = block.source;
        match &mut self.stage {
            BlockStage::Head => {
                self.stage = match block.collected {
                    _ if source.uses_compartments() => BlockStage::Compartment(0, None),
                    Some(_) => BlockStage::References(block.references.start),
                    None => BlockStage::FullPass(0, None),
                };
                let head = source.store.read(&block.key, source.job.seq()).await?;
                let Some(head) = head else { return Ok(Some(Vec::new())) };
                Ok(Some(source.resources_of(source.head_type).chosen(head).await?.into_iter().collect()))
            }
            BlockStage::Compartment(index, remaining) => {
                let Some(kind) = source.job.kinds.get(*index) else { return Ok(None) };
                if kind == "Provenance" {
                    // Provenance is in the compartment of its targets, which are found first.
                    let provenance = ProvenanceLookup::of(source, &block.key, &block.patients).await?;
                    self.stage = BlockStage::Provenance(*index + 1, provenance);
                    return Ok(Some(Vec::new()));
                }
                if kind == source.head_type || !source.job.has_compartments_of(kind) {
                    self.stage = BlockStage::Compartment(*index + 1, None);
                    return Ok(Some(Vec::new()));
                }
                let remaining =
                    remaining.get_or_insert_with(|| source.resources_of(kind).within(&block.patients));
                let Some(versions) = remaining.next().await? else {
                    self.stage = BlockStage::Compartment(*index + 1, None);
                    return Ok(Some(Vec::new()));
                };
                Ok(Some(versions.into_iter().filter_map(|version| version.body).collect()))
            }
            BlockStage::Provenance(next_kind, provenance) => match provenance.next().await? {
                Some(page) => Ok(Some(page)),
                None => {
                    self.stage = BlockStage::Compartment(*next_kind, None);
                    Ok(Some(Vec::new()))
                }
            },
            BlockStage::References(start) => {
                let Some(collected) = block.collected else { return Ok(None) };
                let page = *start..block.references.end.min(*start + REFERENCE_PAGE);
                *start = page.end;
                if page.is_empty() {
                    return Ok(None);
                }
                let mut bodies = Vec::with_capacity(page.len());
                for index in page {
                    let (kind, id) = collected.resource(index);
                    let kind = &source.job.kinds[kind];
                    let version = source.store.read(&ResourceKey::new(kind, id), source.job.seq()).await?;
                    let version = version.map(|version| source.resources_of(kind).projected(version));
                    bodies.extend(version.transpose()?.and_then(|version| version.body));
                }
                Ok(Some(bodies))
            }
            BlockStage::FullPass(index, remaining) => {
                let Some(kind) = source.job.kinds.get(*index) else { return Ok(None) };
                let selection = source.resources_of(kind);
                let remaining = remaining.get_or_insert_with(|| source.resources_of(kind).whole());
                let Some(versions) = remaining.next().await? else {
                    self.stage = BlockStage::FullPass(*index + 1, None);
                    return Ok(Some(Vec::new()));
                };
                let refers = |id: &str| id == block.key.id;
                let belonging =
                    versions.into_iter().filter(|version| source.referenced_heads(version).any(refers));
                let bodies = belonging.map(|version| Ok(selection.projected(version)?.body));
                Ok(Some(bodies.filter_map(Result::transpose).collect::<Result<_, StoreError>>()?))
            }
        }
    }
}
