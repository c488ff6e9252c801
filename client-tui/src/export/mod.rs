//! Bulk Data exports from the kick-off to the downloaded files (Bulk Data Access 2.0.0).
//!
//! Each export has a folder of its own, which also contains its record (`job.json`) and the manifest exactly
//! as the server sent it. An export that was interrupted at any point is resumed from that folder.
//! [`registry`] lists the folders of all exports. Screens and subcommands use the same [`run`].

pub mod download;
pub mod folder;
pub mod job;
mod log;
pub mod registry;
pub(crate) mod retry;
mod row_count;
pub mod run;

pub use folder::{ExportFolder, FolderError};
pub use job::{ExportFile, ExportJob, ExportPhase, FileList, FileProgress, FileStatus};
pub use registry::ExportRegistry;
pub use run::{ExportError, ExportEvent, ExportRun};
