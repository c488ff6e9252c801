//! State of the export screen: the exports of this user, and the form for a new one.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::ServerFacts;
use super::viewer::{ViewedFile, Viewer};
use crate::api::{ExportLevel, KickOff};
use crate::export::{ExportEvent, ExportJob, ExportPhase, FileProgress, FileStatus};
use crate::form::{Form, FormField};

/// Number of seconds of which the throughput is kept.
const SECONDS_MEASURED: usize = 120;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportScreen {
    pub form: Form,
    /// Whether the form is open although there are exports.
    pub new_export: bool,
    /// Exports, the newest first.
    pub rows: Vec<ExportRow>,
    pub selected: usize,
    /// Index of the first visible file of the selected export.
    pub scroll: usize,
    /// The viewer of the files, if it is open.
    pub viewer: Option<Viewer>,
}

/// An export in the table. Its folder identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRow {
    pub folder: PathBuf,
    pub job: ExportJob,
    pub activity: Activity,
    /// Progress of each file that this process has downloaded or is downloading.
    pub files: Vec<FileProgress>,
    /// Bytes that arrived in each of the last seconds of the download.
    pub throughput: VecDeque<u64>,
    /// Host at which the export continues, if the token may not be sent there yet.
    pub foreign_host: Option<String>,
    /// Bytes on disk at the last second.
    last_bytes: u64,
}

/// Activity of this process for an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Nothing since the program was started.
    None,
    /// A task works on the export.
    Active(Option<Waiting>),
    /// The task ended with this error.
    Stopped(String),
    Completed,
}

/// A request that a task will send later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub progress: Option<String>,
    /// Error of the last request, if it is sent again.
    pub error: Option<String>,
    pub until: Timestamp,
}

impl ExportRow {
    /// The command that starts the same export into another folder.
    pub fn command(&self, about: &ServerFacts) -> String {
        let request = &self.job.request;
        let (group, command) = match &request.level {
            ExportLevel::Group(id) => (id.as_str(), "export"),
            ExportLevel::Patients => ("", "export --patients"),
            ExportLevel::System => ("", "export"),
        };
        let folder = format!("{}-copy", self.folder.display());
        let mut options = vec![
            ("out", folder.as_str()),
            ("group", group),
            ("type", &request.types),
            ("since", &request.since),
            ("until", &request.until),
            ("elements", &request.elements),
            ("patient", &request.patients),
            ("associated-data", &request.associated_data),
        ];
        options.extend(request.type_filter.split_whitespace().map(|search| ("type-filter", search)));
        about.command(command, &options)
    }
}

impl ExportScreen {
    pub(super) fn new(fields: Vec<FormField>) -> Self {
        Self {
            form: Form::new(fields),
            new_export: false,
            rows: Vec::new(),
            selected: 0,
            scroll: 0,
            viewer: None,
        }
    }

    /// Returns whether the form is visible. It is, until there is an export.
    pub fn form_open(&self) -> bool {
        self.new_export || self.rows.is_empty()
    }

    /// The parameters in the form.
    ///
    /// # Errors
    /// The reason why a value is invalid.
    pub fn kick_off(&self) -> Result<KickOff, String> {
        let request = KickOff {
            level: ExportLevel::parse(&self.form.value("level"))?,
            types: self.form.value("_type"),
            since: self.form.value("_since"),
            until: self.form.value("_until"),
            type_filter: self.form.value("_typeFilter"),
            elements: self.form.value("_elements"),
            patients: self.form.value("patient"),
            associated_data: self.form.value("associated"),
        };
        request.check()?;
        Ok(request)
    }

    /// The selected export, unless the form is visible.
    pub fn selected(&self) -> Option<&ExportRow> {
        if self.form_open() { None } else { self.rows.get(self.selected) }
    }

    /// The files of the selected export that are downloaded.
    pub fn downloaded_files(&self) -> Vec<ViewedFile> {
        let Some(row) = self.selected() else { return Vec::new() };
        let is_done = |index: usize| {
            let status = row.files.get(index).map(|file| &file.status);
            row.job.phase == ExportPhase::Complete || status == Some(&FileStatus::Done)
        };
        let files = row.job.files.iter().enumerate().filter(|(index, _)| is_done(*index));
        files
            .map(|(_, file)| ViewedFile {
                path: row.folder.join(&file.name),
                name: file.name.trim_end_matches(".ndjson").to_owned(),
                kind: file.kind.clone(),
            })
            .collect()
    }

    pub fn row(&mut self, folder: &Path) -> Option<&mut ExportRow> {
        self.rows.iter_mut().find(|row| row.folder == folder)
    }

    /// Returns whether a task works on an export.
    pub fn any_active(&self) -> bool {
        self.rows.iter().any(ExportRow::is_active)
    }
}

impl ExportRow {
    pub fn new(folder: PathBuf, job: ExportJob, activity: Activity) -> Self {
        let files = vec![FileProgress::default(); job.files.len()];
        Self { folder, job, activity, files, throughput: VecDeque::new(), foreign_host: None, last_bytes: 0 }
    }

    pub fn is_active(&self) -> bool {
        matches!(self.activity, Activity::Active(_))
    }

    /// Returns whether the export is interrupted and can be continued.
    pub fn can_resume(&self) -> bool {
        !self.is_active() && self.job.can_resume()
    }

    /// Measures the throughput of a download. Called once a second.
    pub fn measure(&mut self) {
        let bytes = self.files.iter().map(|file| file.bytes).sum::<u64>();
        if self.is_active() && self.job.phase == ExportPhase::Downloading {
            self.throughput.push_back(bytes.saturating_sub(self.last_bytes));
            if self.throughput.len() > SECONDS_MEASURED {
                self.throughput.pop_front();
            }
        }
        self.last_bytes = bytes;
    }

    /// Applies the progress of the task.
    pub fn apply(&mut self, event: ExportEvent) {
        match event {
            ExportEvent::Record(job) => {
                self.files.resize(job.files.len(), FileProgress::default());
                self.job = *job;
                self.activity = Activity::Active(None);
            }
            ExportEvent::Polled { progress, next_poll } => {
                // A response without a progress text keeps the last text.
                let progress =
                    progress.or_else(|| self.waiting().and_then(|waiting| waiting.progress.clone()));
                self.activity = Activity::Active(Some(Waiting { progress, error: None, until: next_poll }));
            }
            ExportEvent::Retrying { reason, next_attempt } => {
                let progress = self.waiting().and_then(|waiting| waiting.progress.clone());
                self.activity =
                    Activity::Active(Some(Waiting { progress, error: Some(reason), until: next_attempt }));
            }
            ExportEvent::File { index, progress } => {
                if let Some(file) = self.files.get_mut(index) {
                    *file = progress;
                }
            }
        }
    }

    fn waiting(&self) -> Option<&Waiting> {
        match &self.activity {
            Activity::Active(waiting) => waiting.as_ref(),
            _ => None,
        }
    }
}
