//! State of the export screen: the exports of this user, and the form for a new one.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::ServerFacts;
use super::viewer::{ViewedFile, Viewer};
use crate::api::{ContentEntry, ExportLevel, KickOff, percent};
use crate::clock::TICK_MS;
use crate::export::{ExportEvent, ExportFile, ExportJob, ExportPhase, FileList, FileProgress, FileStatus};
use crate::form::{Form, FormField};

/// Number of samples of the rates of a download in one second.
pub const SAMPLES_OF_A_SECOND: usize = (1_000 / TICK_MS) as usize;
/// Number of samples that are kept: those of two minutes.
const SAMPLES_KEPT: usize = 120 * SAMPLES_OF_A_SECOND;

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
    /// Rates between the last ticks of the download, the newest at the end.
    pub rates: VecDeque<TransferRate>,
    /// Host at which the export continues, if the token may not be sent there yet.
    pub foreign_host: Option<String>,
    /// Time of the last tick, and what was on disk then.
    measured: Option<(Timestamp, Transferred)>,
}

/// A choice for the level of a new export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportChoice {
    /// The value of the field `level`.
    pub level: String,
    pub title: String,
    /// Number of members of a group, if it is known.
    pub members: Option<u64>,
}

/// Bytes and resources that a download has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Transferred {
    bytes: u64,
    resources: u64,
}

/// Bytes and resources per second of a download.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TransferRate {
    pub bytes: u64,
    pub resources: u64,
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

    /// The choices for the level of a new export: the groups of the server, all patients, and the whole
    /// server.
    /// A level that the user has entered is another one.
    pub fn choices(&self, groups: &[ContentEntry]) -> Vec<ExportChoice> {
        let choice =
            |level: String, title: &str, members| ExportChoice { level, title: title.to_owned(), members };
        let groups =
            groups.iter().map(|group| choice(format!("Group/{}", group.id), &group.title, group.count));
        let mut choices: Vec<_> = groups.collect();
        choices.push(choice("Patient".to_owned(), "All patients", None));
        choices.push(choice(String::new(), "The whole server", None));
        let entered = self.form.value("level");
        if choices.iter().all(|choice| choice.level != entered) {
            choices.insert(0, choice(entered.clone(), &entered, None));
        }
        choices
    }

    /// The index of the level of the form in these choices.
    pub fn chosen(&self, choices: &[ExportChoice]) -> usize {
        let level = self.form.value("level");
        choices.iter().position(|choice| choice.level == level).unwrap_or(0)
    }

    /// The fields of the form that limit the export, with their values.
    pub fn limits(&self) -> Vec<String> {
        let fields = self.form.fields.iter().filter(|field| !matches!(field.name, "level" | "folder"));
        let fields_with_text = fields.filter(|field| !field.text().trim().is_empty());
        fields_with_text.map(|field| format!("{}={}", field.name, field.text().trim())).collect()
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
        Self { folder, job, activity, files, rates: VecDeque::new(), foreign_host: None, measured: None }
    }

    pub fn is_active(&self) -> bool {
        matches!(self.activity, Activity::Active(_))
    }

    /// Returns whether the export is interrupted and can be continued.
    pub fn can_resume(&self) -> bool {
        !self.is_active() && self.job.can_resume()
    }

    /// Measures the rates of a download since the last tick. What arrived before the end of the download
    /// counts at the next tick, too.
    pub fn measure(&mut self, now: Timestamp) {
        let sum = |value: fn(&FileProgress) -> u64| self.files.iter().map(value).sum();
        let current = Transferred { bytes: sum(|file| file.bytes), resources: sum(|file| file.resources) };
        let before = self.measured.replace((now, current));
        let Some((time, before)) = before else { return };
        let elapsed_ms = (now.as_millisecond() - time.as_millisecond()).max(0) as u64;
        let is_downloading = self.is_active() && self.job.phase == ExportPhase::Downloading;
        if elapsed_ms == 0 || !(is_downloading || current.bytes > before.bytes) {
            return;
        }
        let per_second = |now: u64, before: u64| now.saturating_sub(before) * 1_000 / elapsed_ms;
        self.rates.push_back(TransferRate {
            bytes: per_second(current.bytes, before.bytes),
            resources: per_second(current.resources, before.resources),
        });
        if self.rates.len() > SAMPLES_KEPT {
            self.rates.pop_front();
        }
    }

    /// The mean of the last samples of the rates.
    pub fn mean_rate(&self, samples: usize) -> TransferRate {
        let samples = samples.min(self.rates.len()).max(1);
        let mean = |value: fn(&TransferRate) -> u64| {
            self.rates.iter().rev().take(samples).map(value).sum::<u64>() / samples as u64
        };
        TransferRate { bytes: mean(|rate| rate.bytes), resources: mean(|rate| rate.resources) }
    }

    /// The resources that are here, and the number of all, if the manifest has counts.
    pub fn resources(&self) -> (u64, Option<u64>) {
        let output = |file: &&ExportFile| file.list == FileList::Output;
        let total = self.job.files.iter().filter(output).map(|file| file.count).sum::<Option<u64>>();
        let files = self.job.files.iter().zip(&self.files).filter(|(file, _)| output(file));
        let here = files.map(|(file, progress)| match progress.status {
            FileStatus::Done => file.count.unwrap_or(progress.resources),
            _ => progress.resources,
        });
        (here.sum(), total.filter(|total| *total > 0))
    }

    /// How much of the export is done, in percent: on the server, or of its download.
    pub fn percent(&self) -> Option<u64> {
        match self.job.phase {
            ExportPhase::Running => {
                let progress = self.waiting().and_then(|waiting| waiting.progress.as_deref())?;
                percent(progress).map(u64::from)
            }
            ExportPhase::Downloading => {
                let complete =
                    self.files.iter().filter(|file| file.status == FileStatus::Done).count() as u64;
                match self.resources() {
                    (here, Some(total)) => Some((here * 100 / total).min(100)),
                    (_, None) => (complete * 100).checked_div(self.files.len() as u64),
                }
            }
            _ => None,
        }
    }

    /// The seconds until the download is complete, at its mean rate.
    pub fn seconds_left(&self) -> Option<u64> {
        let (here, total) = self.resources();
        total?.saturating_sub(here).checked_div(self.mean_rate(self.rates.len()).resources)
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
