//! The log of an export, `log.ndjson` in its folder, with the events that SMART's Bulk Data client writes, so
//! that tools which analyse such logs read it.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

const NAME: &str = "log.ndjson";

/// An open log. A later run of the export appends to it.
#[derive(Debug)]
pub(super) struct ExportLog {
    file: File,
}

impl ExportLog {
    /// Opens the log in a folder.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Self { file: options.open(folder.join(NAME))? })
    }

    /// Appends an event. `export_id` is the address of the status.
    pub(super) fn append(
        &self,
        now: Timestamp,
        export_id: Option<&str>,
        event: &str,
        detail: Value,
    ) -> io::Result<()> {
        let line = json!({
            "exportId": export_id, "timestamp": now, "eventId": event, "eventDetail": detail,
        });
        // A single write, so that a crash leaves no part of an event before a later one.
        (&self.file).write_all(format!("{line}\n").as_bytes())
    }
}
