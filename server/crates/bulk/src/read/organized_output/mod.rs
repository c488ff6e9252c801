//! `organizeOutputBy` (Bulk Data Access 3.0.0, output file organization): output in blocks. Each block
//! belongs to one resource of a type, the head. A block consists of a header, the head if it is exported
//! itself, and the exported resources that belong to the head, by type and in the order of the store. To a
//! Patient belong the resources of its compartment and their Provenance; to any other head, the resources
//! that refer to it. A resource that belongs to two heads is in both blocks. A resource that belongs to no
//! head is omitted.
//!
//! Blocks of Patients are read by compartment. There is no such index for other types: one pass over all
//! exported resources collects the references to many heads. If the references exceed a memory limit, the
//! pass covers fewer heads. If they exceed it for a single head, its block is read in a separate pass.
//!
//! | module | contents |
//! |---|---|
//! | `block_source` | the data of the blocks, and their heads |
//! | `head_batch` | heads whose references are collected in one pass |
//! | `collected_references` | the references to the heads of a batch |
//! | `block` | one block: its header and its resources, page by page |
//! | `provenance` | the Provenance of a compartment |

mod block;
mod block_source;
mod collected_references;
mod head_batch;
mod provenance;

pub(crate) use self::block::OutputBlock;
pub(crate) use self::block_source::{BlockSource, heads_of_page};
pub(crate) use self::head_batch::HeadBatch;
