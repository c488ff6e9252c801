//! Compilation of the resources of the catalog.

use crate::model::resource_json::ResourceHeader;

/// The compiled form of a resource.
pub(crate) trait CompiledResource: Sized {
    const KIND: &'static str;

    /// Compiles a resource; the error is a message of one line.
    fn compile(header: &ResourceHeader, bytes: &[u8]) -> Result<Self, String>;

    /// The approximate size in memory, in bytes.
    fn memory_bytes(&self) -> usize;
}
