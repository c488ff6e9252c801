//! A folder with one file of lines for each day. Old days are removed, and the whole folder has a maximum
//! size. The reserve of the disk is never used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::civil::Date;
use jiff::{Span, ToSpan as _};
use store::space::{DiskSpace, WritePurpose};

/// Limits of a folder.
#[derive(Debug, Clone)]
pub struct RetentionLimits {
    /// Number of days that are kept; 0 for all.
    pub keep_days: u32,
    /// Maximum size of all files in bytes; 0 for no maximum.
    pub max_bytes: u64,
    /// Old files may be removed before `keep_days` to keep the maximum size, and to free the reserve of the
    /// disk.
    pub removes_early: bool,
}

/// A folder of daily files.
pub struct RetainedFolder {
    folder: PathBuf,
    /// Start of the file names, before the date.
    prefix: &'static str,
    suffix: &'static str,
    limits: RetentionLimits,
    disk: DiskSpace,
    /// Name and size of the file that is being written.
    current: Option<(String, u64)>,
    /// Files for which another part of the server has a use, so that their age and size do not remove them.
    in_use: Option<Arc<FilesInUse>>,
}

/// Returns whether a file, given by its name, is in use.
type FilesInUse = dyn Fn(&str) -> bool + Send + Sync;

/// The files of a day are split into this many parts of the maximum size, so that a day can be removed in
/// part.
const PARTS: u64 = 4;

impl RetainedFolder {
    /// A folder whose files are named `prefix`, a date and `suffix`. The folder must exist.
    pub fn new(folder: PathBuf, prefix: &'static str, suffix: &'static str, limits: RetentionLimits) -> Self {
        let disk = DiskSpace::of(&folder);
        Self { folder, prefix, suffix, limits, disk, current: None, in_use: None }
    }

    /// Keeps files in use, whatever their age and size. A full disk removes them nevertheless.
    pub fn keeping(self, in_use: Arc<FilesInUse>) -> Self {
        Self { in_use: Some(in_use), ..self }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Makes room for a text of the file of this day, and returns the name of the file and a description of
    /// each file that was removed. Call it before each write.
    ///
    /// # Errors
    /// An error if the folder cannot be read, or the text would use the reserve of the disk.
    pub fn make_room(&mut self, day: &str, length: u64) -> io::Result<(String, Vec<String>)> {
        let mut removed = Vec::new();
        let part_bytes = self.limits.max_bytes / PARTS;
        let is_full = |size: u64| part_bytes > 0 && size > 0 && size + length > part_bytes;
        let is_current = |name: &str, size: u64| self.is_of_day(name, day) && !is_full(size);
        if !self.current.as_ref().is_some_and(|(name, size)| is_current(name, *size)) {
            self.remove_old(day, &mut removed)?;
            let last = self.files()?.into_iter().rfind(|(name, _)| self.is_of_day(name, day));
            let file = match last {
                None => (format!("{}{day}{}", self.prefix, self.suffix), 0),
                Some((name, size)) if is_full(size) => (self.next_part(&name, day), 0),
                Some(file) => file,
            };
            self.current = Some(file);
        }
        while let Err(no_space) = self.disk.check(length, WritePurpose::Log) {
            let oldest = self.files()?.into_iter().next();
            let current = self.current.as_ref().map(|(name, _)| name.clone());
            match oldest.filter(|(name, _)| self.limits.removes_early && Some(name) != current.as_ref()) {
                Some((name, _)) => self.remove(&name, "the disk is almost full", &mut removed)?,
                None => return Err(io::Error::new(io::ErrorKind::StorageFull, no_space)),
            }
        }
        let Some((name, size)) = &mut self.current else { unreachable!("the current file was set") };
        *size += length;
        Ok((name.clone(), removed))
    }

    /// Looks for the file of the day again, because another program has removed or renamed it.
    pub fn forget_current(&mut self) {
        self.current = None;
    }

    /// Checks that a line that can be refused first does not use one and a half times the reserve.
    pub fn disk(&self) -> DiskSpace {
        self.disk.clone()
    }

    fn is_of_day(&self, name: &str, day: &str) -> bool {
        name.strip_prefix(self.prefix).is_some_and(|rest| rest.starts_with(day))
    }

    /// The name of the part of a day after this one: `audit-2026-11-25.002.ndjson` after
    /// `audit-2026-11-25.ndjson`.
    fn next_part(&self, name: &str, day: &str) -> String {
        let part = name.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix(day));
        let part =
            part.and_then(|rest| rest.strip_suffix(self.suffix)).and_then(|rest| rest.strip_prefix('.'));
        let number = part.and_then(|number| number.parse::<u32>().ok()).unwrap_or(1) + 1;
        format!("{}{day}.{number:03}{}", self.prefix, self.suffix)
    }

    /// Returns name and size of all files, by day and part.
    fn files(&self) -> io::Result<Vec<(String, u64)>> {
        daily_files(&self.folder, self.prefix, self.suffix)
    }

    fn day_of(&self, name: &str) -> Option<Date> {
        day_of(name, self.prefix, self.suffix)
    }

    /// Removes the days that are not kept, and the oldest files above the maximum size.
    fn remove_old(&self, day: &str, removed: &mut Vec<String>) -> io::Result<()> {
        let mut files = self.files()?;
        files.retain(|(name, _)| !self.in_use.as_ref().is_some_and(|in_use| in_use(name)));
        if self.limits.keep_days > 0
            && let Ok(today) = day.parse::<Date>()
        {
            let period: Span = i64::from(self.limits.keep_days).min(36_500).days();
            let first = today.checked_sub(period).unwrap_or(Date::MIN);
            let is_old = |name: &str| self.day_of(name).is_some_and(|day| day < first);
            for (name, _) in files.iter().filter(|(name, _)| is_old(name)) {
                self.remove(name, "it is older than keep_days", removed)?;
            }
            files.retain(|(name, _)| !is_old(name));
        }
        let mut total: u64 = files.iter().map(|(_, size)| size).sum();
        // Room for the part that begins now.
        let most = self.limits.max_bytes - self.limits.max_bytes / PARTS;
        for (name, size) in files {
            if self.limits.max_bytes == 0 || !self.limits.removes_early || total <= most {
                break;
            }
            self.remove(&name, "the files exceed their maximum size", removed)?;
            total -= size;
        }
        Ok(())
    }

    fn remove(&self, name: &str, reason: &str, removed: &mut Vec<String>) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))?;
        removed.push(format!("{} was removed, because {reason}", self.folder.join(name).display()));
        Ok(())
    }
}

/// Returns name and size of the daily files of a folder, by day and part.
///
/// # Errors
/// An error if the folder cannot be read.
pub fn daily_files(folder: &Path, prefix: &str, suffix: &str) -> io::Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if day_of(&name, prefix, suffix).is_some() {
            files.push((name, entry.metadata()?.len()));
        }
    }
    // Without the suffix, the first part of a day sorts before the others.
    files.sort_by(|(a, _), (b, _)| a.strip_suffix(suffix).cmp(&b.strip_suffix(suffix)));
    Ok(files)
}

fn day_of(name: &str, prefix: &str, suffix: &str) -> Option<Date> {
    name.strip_prefix(prefix)?.strip_suffix(suffix)?.get(..10)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &std::path::Path) -> Vec<String> {
        let files =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = files.collect();
        names.sort();
        names
    }

    #[test]
    fn old_days_are_removed_and_the_size_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let limits = RetentionLimits { keep_days: 3, max_bytes: 400, removes_early: true };
        let mut folder = RetainedFolder::new(dir.path().to_owned(), "log-", ".txt", limits);
        fs::write(dir.path().join("other.txt"), "kept").unwrap();
        let mut write = |day: &str, length: usize| {
            let (name, removed) = folder.make_room(day, length as u64).unwrap();
            let text = fs::read_to_string(dir.path().join(&name)).unwrap_or_default();
            fs::write(dir.path().join(&name), text + &"x".repeat(length)).unwrap();
            removed.len()
        };
        for day in ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"] {
            assert_eq!(write(day, 60), 0);
        }
        assert_eq!(write("2026-01-05", 60), 1);
        assert_eq!(names(dir.path())[0], "log-2026-01-02.txt");
        // A day is split into parts of a quarter, and the oldest file is removed above the maximum.
        assert_eq!(write("2026-01-05", 60), 0);
        assert_eq!(write("2026-01-05", 60), 0);
        assert_eq!(write("2026-01-05", 60), 1);
        assert_eq!(
            names(dir.path()),
            [
                "log-2026-01-03.txt",
                "log-2026-01-04.txt",
                "log-2026-01-05.002.txt",
                "log-2026-01-05.003.txt",
                "log-2026-01-05.004.txt",
                "log-2026-01-05.txt",
                "other.txt"
            ]
        );
    }

    #[test]
    fn without_early_removal_only_keep_days_removes() {
        let dir = tempfile::tempdir().unwrap();
        let limits = RetentionLimits { keep_days: 0, max_bytes: 100, removes_early: false };
        let mut folder = RetainedFolder::new(dir.path().to_owned(), "log-", ".txt", limits);
        for day in ["2026-01-01", "2026-01-02", "2026-01-03"] {
            let (name, removed) = folder.make_room(day, 90).unwrap();
            assert!(removed.is_empty());
            fs::write(dir.path().join(name), "x".repeat(90)).unwrap();
        }
        assert_eq!(names(dir.path()).len(), 3);
    }
}
