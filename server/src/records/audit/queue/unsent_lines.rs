//! The audit lines that were not sent yet. The audit files are the queue: a position in each file says how
//! far it was sent, so that lines wait on the disk, also those that commands write while the server is
//! stopped.
//!
//! The positions are saved after lines were sent. A crash between both sends lines again, and loses none.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::records::retained_folder::daily_files;

/// Begin of the names of the audit files; the date follows.
pub const PREFIX: &str = "audit-";
/// End of these names.
pub const SUFFIX: &str = ".ndjson";
/// File in the data folder with the positions.
const POSITIONS: &str = "audit-sent.json";
/// Maximum size of the lines that are sent together; one line may be longer.
const BATCH_BYTES: u64 = 1 << 20;
/// Shortest time between two saves of the positions.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// The lines that were not sent yet.
pub struct UnsentLines {
    folder: PathBuf,
    file: PathBuf,
    /// Number of bytes that were sent, by the name of the file.
    positions: BTreeMap<String, u64>,
    /// The file that was read last: its lines are sent also after another program has removed or renamed it.
    last: Option<(String, File)>,
    saved: Instant,
    is_saved: bool,
}

/// Lines of one file that are sent together.
#[derive(Debug, PartialEq, Eq)]
pub struct LineBatch {
    /// The lines, without their line feeds.
    pub lines: Vec<String>,
    name: String,
    end: u64,
}

/// The number of bytes that wait, and the first file that has some.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Unsent {
    /// Number of bytes.
    pub bytes: u64,
    /// Name of the file.
    pub first: Option<String>,
}

impl UnsentLines {
    /// Opens the positions of a data folder. Without positions, the lines that are there count as sent.
    ///
    /// # Errors
    /// An error if the audit folder cannot be read, or the positions can be neither read nor written.
    pub fn open(data: &Path) -> io::Result<Self> {
        let (folder, file) = (data.join("audit"), data.join(POSITIONS));
        let read = fs::read(&file);
        let is_new = read.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let positions = match is_new {
            true => daily_files(&folder, PREFIX, SUFFIX)?.into_iter().collect(),
            false => serde_json::from_slice(&read?).map_err(|error| {
                let reason = "remove the file, and only new events are sent";
                io::Error::new(ErrorKind::InvalidData, format!("{}: {error}; {reason}", file.display()))
            })?,
        };
        let mut lines =
            Self { folder, file, positions, last: None, saved: Instant::now(), is_saved: !is_new };
        lines.save()?;
        Ok(lines)
    }

    /// The bytes that wait.
    ///
    /// # Errors
    /// An error if the folder cannot be read.
    pub fn unsent(&self) -> io::Result<Unsent> {
        let mut unsent = Unsent::default();
        for (name, length) in daily_files(&self.folder, PREFIX, SUFFIX)? {
            let waiting = length - self.position(&name, length);
            unsent.bytes += waiting;
            if waiting > 0 {
                unsent.first.get_or_insert(name);
            }
        }
        Ok(unsent)
    }

    /// The position in a file of this length. A shorter file than before is another one.
    fn position(&self, name: &str, length: u64) -> u64 {
        self.positions.get(name).copied().filter(|position| *position <= length).unwrap_or(0)
    }

    /// The next lines, at most `most`; `None` if no complete line waits.
    ///
    /// # Errors
    /// An error if the folder or a file cannot be read.
    pub fn next(&mut self, most: usize) -> io::Result<Option<LineBatch>> {
        if let Some(batch) = self.next_of_lost_file(most)? {
            return Ok(Some(batch));
        }
        let files = daily_files(&self.folder, PREFIX, SUFFIX)?;
        let last = self.last.as_ref().map(|(name, _)| name);
        self.positions.retain(|name, _| Some(name) == last || files.iter().any(|(file, _)| file == name));
        for (name, length) in files {
            let position = self.position(&name, length);
            if position == length {
                continue;
            }
            let file = match File::open(self.folder.join(&name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file?,
            };
            let batch = read_lines(&file, name.clone(), position, most)?;
            self.last = Some((name, file));
            if batch.is_some() {
                return Ok(batch);
            }
        }
        Ok(None)
    }

    /// The next lines of the file that was read last, if another program has removed or renamed it.
    fn next_of_lost_file(&mut self, most: usize) -> io::Result<Option<LineBatch>> {
        let Some((name, file)) = &self.last else { return Ok(None) };
        let own = file.metadata()?;
        let file_of_name = fs::metadata(self.folder.join(name)).ok();
        if file_of_name.as_ref().is_some_and(|other| (other.dev(), other.ino()) == (own.dev(), own.ino())) {
            return Ok(None);
        }
        let batch = read_lines(file, name.clone(), self.position(name, own.len()), most)?;
        // The server writes to this file until it has noticed the loss, and makes another one.
        if batch.is_none() && (file_of_name.is_some() || self.is_followed(name)?) {
            let name = name.clone();
            self.positions.remove(&name);
            self.last = None;
            self.is_saved = false;
            self.save()?;
        }
        Ok(batch)
    }

    /// Returns whether the server writes to a later file.
    fn is_followed(&self, name: &str) -> io::Result<bool> {
        let last = daily_files(&self.folder, PREFIX, SUFFIX)?.pop();
        Ok(last.is_some_and(|(last, _)| last.strip_suffix(SUFFIX) > name.strip_suffix(SUFFIX)))
    }

    /// Counts lines as sent.
    ///
    /// # Errors
    /// An error if the positions cannot be saved.
    pub fn complete(&mut self, batch: &LineBatch) -> io::Result<()> {
        self.positions.insert(batch.name.clone(), batch.end);
        self.is_saved = false;
        if self.saved.elapsed() < SAVE_INTERVAL { Ok(()) } else { self.save() }
    }

    /// Counts the oldest lines as sent, until at most `most` bytes wait. Returns the number of their bytes.
    ///
    /// # Errors
    /// An error if a file cannot be read.
    pub fn drop_oldest(&mut self, most: u64) -> io::Result<u64> {
        let mut dropped = 0;
        let waiting = self.unsent()?.bytes;
        for (name, length) in daily_files(&self.folder, PREFIX, SUFFIX)? {
            let excess = waiting.saturating_sub(most + dropped);
            if excess == 0 {
                break;
            }
            let position = self.position(&name, length);
            let mut end = length.min(position + excess);
            if end < length {
                // The rest of the line in which the excess ends.
                let mut reader = BufReader::new(File::open(self.folder.join(&name))?);
                reader.seek(SeekFrom::Start(end - 1))?;
                end += reader.skip_until(b'\n')? as u64 - 1;
            }
            dropped += end - position;
            self.positions.insert(name, end);
        }
        self.is_saved = false;
        self.save()?;
        Ok(dropped)
    }

    /// Saves the positions, if they have changed.
    ///
    /// # Errors
    /// An error if they cannot be written.
    pub fn save(&mut self) -> io::Result<()> {
        if self.is_saved {
            return Ok(());
        }
        let part = self.file.with_extension("part");
        let mut file = File::create(&part)?;
        file.write_all(&serde_json::to_vec(&self.positions)?)?;
        file.sync_all()?;
        fs::rename(&part, &self.file)?;
        (self.saved, self.is_saved) = (Instant::now(), true);
        Ok(())
    }
}

/// Reads complete lines from a position; `None` if there is none.
fn read_lines(file: &File, name: String, position: u64, most: usize) -> io::Result<Option<LineBatch>> {
    let (mut lines, mut end) = (Vec::new(), position);
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(position))?;
    while lines.len() < most && end - position < BATCH_BYTES {
        let mut line = Vec::new();
        let length = reader.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            break;
        }
        end += length as u64;
        lines.push(String::from_utf8_lossy(&line).into_owned());
    }
    Ok((!lines.is_empty()).then_some(LineBatch { lines, name, end }))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    const NAMES: [&str; 4] =
        ["audit-2026-01-01.ndjson", "audit-2026-01-01.002.ndjson", "audit-2026-01-02.ndjson", "other.ndjson"];

    fn folder() -> TempDir {
        let data = tempfile::tempdir().unwrap();
        fs::create_dir(data.path().join("audit")).unwrap();
        data
    }

    fn append(data: &Path, name: &str, text: &str) {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).open(data.join("audit").join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn send(lines: &mut UnsentLines, most: usize) -> Vec<String> {
        let mut lines_sent = Vec::new();
        while let Some(batch) = lines.next(most).unwrap() {
            assert!(batch.lines.len() <= most);
            lines.complete(&batch).unwrap();
            lines_sent.extend(batch.lines);
        }
        lines_sent
    }

    #[test]
    fn only_lines_after_the_first_start_are_sent() {
        let data = folder();
        append(data.path(), NAMES[0], "old\n");
        let mut lines = UnsentLines::open(data.path()).unwrap();
        append(data.path(), NAMES[0], "new\ncut o");
        assert_eq!(send(&mut lines, 10), ["new"]);
        append(data.path(), NAMES[0], "ff\n");
        assert_eq!(send(&mut lines, 10), ["cut off"]);
        fs::write(data.path().join(POSITIONS), "{").unwrap();
        assert!(UnsentLines::open(data.path()).is_err());
    }

    #[test]
    fn the_lines_of_a_file_that_was_removed_or_renamed_are_sent() {
        for removed in [false, true] {
            let data = folder();
            let path = data.path().join("audit").join(NAMES[0]);
            let mut lines = UnsentLines::open(data.path()).unwrap();
            append(data.path(), NAMES[0], "one\n");
            let mut writer = OpenOptions::new().append(true).open(&path).unwrap();
            assert_eq!(send(&mut lines, 1), ["one"]);
            writer.write_all(b"two\n").unwrap();
            match removed {
                true => fs::remove_file(&path).unwrap(),
                false => fs::rename(&path, data.path().join("audit/rotated")).unwrap(),
            }
            assert_eq!(send(&mut lines, 1), ["two"]);
            // The server has not noticed it yet.
            writer.write_all(b"three\n").unwrap();
            assert_eq!(send(&mut lines, 1), ["three"]);
            append(data.path(), NAMES[0], "four\nfive\n");
            assert_eq!(send(&mut lines, 1), ["four", "five"]);
            lines.save().unwrap();
            assert_eq!(send(&mut UnsentLines::open(data.path()).unwrap(), 1), [""; 0]);
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// Lines are written to a file.
        Write(usize, u8),
        /// Some of the lines that wait are sent, and the server may end after that.
        Send { most: usize, batches: usize, ends: bool },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let write = (0..4_usize, 1..5_u8).prop_map(|(file, count)| Step::Write(file, count));
        let send = (1..4_usize, 0..4_usize, any::<bool>()).prop_map(|(most, batches, ends)| Step::Send {
            most,
            batches,
            ends,
        });
        prop::collection::vec(prop_oneof![write, send], 0..30)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn each_line_is_sent_at_least_once_and_in_the_order_of_its_file(steps in steps()) {
            let data = folder();
            let mut lines = UnsentLines::open(data.path()).unwrap();
            let (mut written, mut sent) = (vec![Vec::new(); 4], Vec::new());
            for step in steps {
                match step {
                    Step::Write(file, count) => for _ in 0..count {
                        let text = format!("{file}/{}", written[file].len());
                        append(data.path(), NAMES[file], &format!("{text}\n"));
                        written[file].push(text);
                    },
                    Step::Send { most, batches, ends } => {
                        for _ in 0..batches {
                            let Some(batch) = lines.next(most).unwrap() else { break };
                            lines.complete(&batch).unwrap();
                            sent.extend(batch.lines);
                        }
                        if ends {
                            lines = UnsentLines::open(data.path()).unwrap();
                        }
                    }
                }
            }
            sent.extend(send(&mut lines, 2));
            prop_assert_eq!(lines.unsent().unwrap(), Unsent::default());
            for (file, lines) in written[..3].iter().enumerate() {
                let mut own: Vec<_> = sent.iter().filter(|line| line.starts_with(&format!("{file}/"))).collect();
                // A line is sent again if the positions were not saved before an end.
                own.sort_by_key(|line| line[2..].parse::<usize>().unwrap());
                own.dedup();
                prop_assert_eq!(own, lines.iter().collect::<Vec<_>>());
            }
            prop_assert!(!sent.iter().any(|line| line.starts_with("3/")));
        }

        #[test]
        fn the_newest_lines_within_the_bound_stay(lengths in prop::collection::vec(1..40_usize, 1..20), most in 0..400_u64) {
            let data = folder();
            let mut lines = UnsentLines::open(data.path()).unwrap();
            let all: Vec<_> = lengths.iter().map(|length| "x".repeat(*length)).collect();
            for (index, line) in all.iter().enumerate() {
                append(data.path(), NAMES[2 * index / lengths.len()], &format!("{line}\n"));
            }
            let before = lines.unsent().unwrap().bytes;
            let dropped = lines.drop_oldest(most).unwrap();
            let after = lines.unsent().unwrap().bytes;
            prop_assert_eq!(after + dropped, before);
            prop_assert!(after <= most);
            let rest = send(&mut lines, 100);
            prop_assert!(all.ends_with(&rest));
            // One line more would not have fit.
            if rest.len() < all.len() {
                prop_assert!(after + all[all.len() - rest.len() - 1].len() as u64 + 1 > most);
            }
        }
    }
}
