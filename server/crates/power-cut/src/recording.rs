//! Runs a workload under strace and keeps its operations on a folder.
//!
//! The workload is a test function of the calling test program, which is started again for each session. It
//! uses the folder of [`recorded_folder`] and reports each acknowledged request with [`mark`]. A session may
//! end without closing its files, as a killed process does.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use tempfile::TempDir;

use crate::disk::{DiskImage, Inode, ROOT};
use crate::trace::{self, SystemCall};

/// Environment variables of the recorded process: the folder, and the number of the session.
const FOLDER: &str = "TREFOIL_POWER_CUT_FOLDER";
const SESSION: &str = "TREFOIL_POWER_CUT_SESSION";
/// Environment variable with the path of a saved trace, which is used instead of a new recording.
pub(crate) const SAVED_TRACE: &str = "TREFOIL_POWER_CUT_TRACE";
/// Name of the file that contains the marks, next to the recorded folder.
const MARKS: &str = "marks";
/// Line between the traces of two sessions.
const NEXT_SESSION: &str = "=== session\n";
/// Calls that may change a file, and those that only matter on a recorded file, where they are errors.
const CALLS: &str = "open,openat,openat2,creat,close,dup,fcntl,lseek,write,pwrite64,writev,pwritev,pwritev2,truncate,\
    ftruncate,fallocate,mkdir,mkdirat,rmdir,rename,renameat,renameat2,link,linkat,unlink,unlinkat,symlink,symlinkat,\
    fsync,fdatasync,sync_file_range,syncfs,sync,mmap,sendfile,splice,copy_file_range,io_uring_setup";

/// An operation of a workload, at the time at which it took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Adds or removes entries of a folder. A rename within a folder does both in one operation.
    Names {
        /// The folder.
        folder: Inode,
        /// Each name with its new file or folder, or `None` if the name is removed.
        changes: Vec<(String, Option<Inode>)>,
    },
    /// Writes bytes to a file.
    Write {
        /// The file.
        file: Inode,
        /// Offset in bytes.
        at: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Sets the length of a file.
    Length {
        /// The file.
        file: Inode,
        /// New length in bytes.
        length: u64,
    },
    /// Makes the earlier operations on a file, or the names in a folder, durable.
    Sync {
        /// The file or folder.
        inode: Inode,
        /// Number of operations that had ended when the call began, which it covers.
        covers: usize,
        /// Path of the file or folder relative to the recorded folder, as it was opened.
        path: String,
    },
    /// The workload received an acknowledgement.
    Mark(String),
}

/// The operations of a workload.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The operations in the order of their effects.
    pub operations: Vec<Operation>,
    /// For each inode, whether it is a folder.
    pub folders: Vec<bool>,
    /// Number of operations that made the content of the folder before the first session.
    pub(crate) prelude: usize,
    /// The path of the recorded folder, calls that make its content before the first session, and the output
    /// of strace for each session.
    pub(crate) trace: String,
}

/// The folder of the workload if the calling process is recorded.
pub fn recorded_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// The number of the session of a recorded process, counted from 0.
pub fn recorded_session() -> usize {
    std::env::var(SESSION).ok().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Records that the workload received an acknowledgement.
///
/// # Panics
/// Panics if the calling process is not recorded or the mark cannot be written.
pub fn mark(text: &str) {
    let folder = recorded_folder().expect("only a recorded process marks acknowledgements");
    let path = folder.with_file_name(MARKS);
    let file = fs::File::options().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a mark can be written");
}

impl Recording {
    /// Records the sessions of a workload one after another. `test` is the name of the test function that
    /// runs the workload. Returns `None`, and prints that the test is left out, if strace is not available.
    ///
    /// # Errors
    /// A description if a session fails or its trace cannot be modelled.
    pub fn of_test(test: &str, sessions: usize) -> Result<Option<Self>, String> {
        if let Some(saved) = std::env::var_os(SAVED_TRACE) {
            let text = fs::read_to_string(&saved).map_err(|error| format!("{}: {error}", saved.display()))?;
            return Self::parse(text).map(Some);
        }
        Self::of_sessions(test, 0..sessions, &DiskImage::new(), &[])
    }

    /// Records sessions on a folder with this content, after the workload has received these
    /// acknowledgements.
    pub(crate) fn of_sessions(
        test: &str,
        sessions: Range<usize>,
        before: &DiskImage,
        marks: &[&str],
    ) -> Result<Option<Self>, String> {
        let probe =
            strace(Path::new("/dev/null")).arg("true").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !probe.is_ok_and(|status| status.success()) {
            println!("left out: {test}, because strace is not installed or may not trace processes here");
            return Ok(None);
        }
        let failed = |error: std::io::Error| format!("the workload cannot be recorded: {error}");
        let dir = TempDir::new().map_err(failed)?;
        let root = dir.path().canonicalize().map_err(failed)?.join("root");
        before.write_to(&root).map_err(failed)?;
        let mut text = format!("{}\n{}", root.display(), trace::calls_that_make(before, &root, MARKS, marks));
        for session in sessions {
            let trace = dir.path().join("trace");
            let program = std::env::current_exe().map_err(failed)?;
            let output = strace(&trace)
                .arg(program)
                .args(["--exact", test, "--nocapture"])
                .env(FOLDER, &root)
                .env(SESSION, session.to_string())
                .output()
                .map_err(failed)?;
            if !output.status.success() {
                let (out, err) =
                    (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                return Err(format!("session {session} of {test} ended with {}:\n{out}{err}", output.status));
            }
            text.push_str(NEXT_SESSION);
            text.push_str(&fs::read_to_string(&trace).map_err(failed)?);
        }
        Self::parse(text).map(Some)
    }

    /// Parses a trace that [`Recording::of_test`] has made.
    pub(crate) fn parse(text: String) -> Result<Self, String> {
        let (root, sessions) = text.split_once('\n').ok_or("the trace is empty")?;
        let mut recorder = Recorder::new(root);
        let mut prelude = None;
        for session in sessions.split(NEXT_SESSION) {
            recorder.open.clear();
            recorder.syncs.clear();
            trace::parse(session, |call| recorder.apply(&call))?;
            prelude.get_or_insert(recorder.operations.len());
        }
        let Recorder { operations, folders, .. } = recorder;
        if !operations.iter().any(|operation| matches!(operation, Operation::Mark(_))) {
            return Err("the workload has acknowledged nothing".to_owned());
        }
        Ok(Self { operations, folders, prelude: prelude.unwrap_or_default(), trace: text })
    }

    /// The recording without the fsyncs of the paths that `is_dropped` selects, and the number of these
    /// fsyncs.
    #[must_use]
    pub fn without_syncs(&self, is_dropped: impl Fn(&str) -> bool) -> (Self, usize) {
        self.without(|_, path| is_dropped(path))
    }

    /// The recording without the fsync that is the operation with this number.
    #[must_use]
    pub fn without_sync(&self, number: usize) -> Self {
        self.without(|operation, _| operation == number).0
    }

    fn without(&self, is_dropped: impl Fn(usize, &str) -> bool) -> (Self, usize) {
        let (mut other, mut dropped) = (self.clone(), 0);
        // The operation remains, so that the others keep their numbers, but it covers nothing.
        for (number, operation) in other.operations.iter_mut().enumerate() {
            if let Operation::Sync { path, covers, .. } = operation
                && is_dropped(number, path)
            {
                *covers = 0;
                dropped += 1;
            }
        }
        (other, dropped)
    }

    /// The number of fsyncs for each path.
    pub fn syncs(&self) -> std::collections::BTreeMap<&str, usize> {
        let mut files = std::collections::BTreeMap::new();
        for operation in &self.operations {
            if let Operation::Sync { path, .. } = operation {
                *files.entry(path.as_str()).or_default() += 1;
            }
        }
        files
    }
}

fn strace(output: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "--seccomp-bpf", "-qq", "-xx", "-s", "1000000000", "-e"]);
    command.arg(format!("trace={CALLS}")).args(["-e", "signal=none", "-o"]).arg(output).arg("--");
    command
}

/// An open file or folder of the recorded process.
#[derive(Clone)]
struct OpenInode {
    inode: Inode,
    path: String,
    /// Shared by duplicates of the descriptor.
    position: Rc<Cell<u64>>,
    appends: bool,
}

struct Recorder {
    root: String,
    marks: String,
    operations: Vec<Operation>,
    folders: Vec<bool>,
    /// The content of the folder as the recorded process sees it.
    live: DiskImage,
    open: HashMap<i64, OpenInode>,
    /// Number of operations at the start of the fsync that a thread is executing.
    syncs: HashMap<u32, usize>,
}

/// The file of the marks, whose writes are not operations on the disk.
const MARKS_INODE: Inode = usize::MAX;

impl Recorder {
    fn new(root: &str) -> Self {
        let marks = Path::new(root).with_file_name(MARKS).display().to_string();
        Self {
            root: root.to_owned(),
            marks,
            operations: Vec::new(),
            folders: vec![true],
            live: DiskImage::new(),
            open: HashMap::new(),
            syncs: HashMap::new(),
        }
    }

    fn apply(&mut self, call: &SystemCall) -> Result<(), String> {
        let name = call.name.as_str();
        if call.is_start {
            match name {
                // The descriptor is free before the call returns, and another thread may receive it.
                "close" => drop(call.number(0).and_then(|fd| self.open.remove(&fd))),
                "fsync" | "fdatasync" => drop(self.syncs.insert(call.thread, self.operations.len())),
                "io_uring_setup" => {
                    return Err("the workload uses io_uring, which is not modelled".to_owned());
                }
                _ => {}
            }
            return Ok(());
        }
        let unsupported = || Err(format!("{name}({}) is not modelled", call.arguments.join(", ")));
        let file = call.number(0).and_then(|fd| self.open.get(&fd)).cloned();
        match (name, file) {
            ("open", _) => self.open(call, self.path(call, None, 0), 1),
            ("openat", _) => self.open(call, self.path(call, Some(0), 1), 2),
            ("creat" | "openat2" | "truncate" | "symlink" | "symlinkat" | "link", _) => {
                let paths = (0..call.arguments.len()).filter(|index| call.arguments[*index].starts_with('"'));
                if paths.into_iter().any(|index| self.path(call, None, index).is_some()) {
                    unsupported()
                } else {
                    Ok(())
                }
            }
            ("dup", Some(file)) => {
                self.open.insert(call.result, file);
                Ok(())
            }
            ("fcntl", Some(file)) => {
                if call.arguments.get(1).is_some_and(|command| command.starts_with("F_DUPFD")) {
                    self.open.insert(call.result, file);
                }
                Ok(())
            }
            ("lseek", Some(file)) => {
                file.position.set(call.result.unsigned_abs());
                Ok(())
            }
            ("write" | "writev", Some(file)) => {
                let length = if file.inode == MARKS_INODE { 0 } else { self.length(file.inode) };
                let start = if file.appends { length } else { file.position.get() };
                file.position.set(start + call.result.unsigned_abs());
                self.write(&file, start, call)
            }
            ("pwrite64", Some(file)) => {
                let start = call.number(3).ok_or("pwrite64 without an offset")?;
                self.write(&file, start.unsigned_abs(), call)
            }
            ("ftruncate", Some(file)) => {
                let length = call.number(1).ok_or("ftruncate without a length")?.unsigned_abs();
                self.push(Operation::Length { file: file.inode, length });
                Ok(())
            }
            ("fallocate", Some(file)) if call.arguments[1] == "0" => {
                let end = call.number(2).unwrap_or_default() + call.number(3).unwrap_or_default();
                let length = end.unsigned_abs();
                if length > self.length(file.inode) {
                    self.push(Operation::Length { file: file.inode, length });
                }
                Ok(())
            }
            ("fsync" | "fdatasync", Some(file)) => {
                let covers = self.syncs.remove(&call.thread).ok_or("an fsync without a start")?;
                self.push(Operation::Sync { inode: file.inode, covers, path: file.path });
                Ok(())
            }
            ("mkdir", _) => self.make_folder(self.path(call, None, 0)),
            ("mkdirat", _) => self.make_folder(self.path(call, Some(0), 1)),
            ("rmdir" | "unlink", _) => self.remove(self.path(call, None, 0)),
            ("unlinkat", _) => self.remove(self.path(call, Some(0), 1)),
            ("rename", _) => self.rename(self.path(call, None, 0), self.path(call, None, 1)),
            ("renameat", _) => self.rename(self.path(call, Some(0), 1), self.path(call, Some(2), 3)),
            ("renameat2", _) => {
                let paths = (self.path(call, Some(0), 1), self.path(call, Some(2), 3));
                if call.has(4, "RENAME_EXCHANGE") { unsupported() } else { self.rename(paths.0, paths.1) }
            }
            ("linkat", _) => {
                let (from, to) = (self.path(call, Some(0), 1), self.path(call, Some(2), 3));
                let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
                let linked = self.find(&from)?;
                let (folder, name) = self.parent(&to)?;
                self.push(Operation::Names { folder, changes: vec![(name, Some(linked))] });
                Ok(())
            }
            ("mmap", _) => {
                let mapped = call.number(4).and_then(|fd| self.open.get(&fd)).is_some();
                let is_written = call.has(2, "PROT_WRITE") && call.has(3, "MAP_SHARED");
                if mapped && is_written { unsupported() } else { Ok(()) }
            }
            // These calls begin with the descriptor that is written.
            ("pwritev" | "pwritev2" | "fallocate" | "sendfile", Some(_)) => unsupported(),
            ("splice" | "copy_file_range", _) => {
                let to = call.number(2).and_then(|fd| self.open.get(&fd));
                if to.is_some() { unsupported() } else { Ok(()) }
            }
            ("sync" | "syncfs", _) => unsupported(),
            // `sync_file_range` writes data but makes neither lengths nor names durable, so it is not a
            // barrier.
            _ => Ok(()),
        }
    }

    /// A path relative to the recorded folder, or `None` if the path is outside of it. Only the file of the
    /// marks is returned as an absolute path.
    fn path(&self, call: &SystemCall, folder: Option<usize>, index: usize) -> Option<String> {
        let text = call.text(index);
        if text == self.marks {
            return Some(text);
        }
        if text.starts_with('/') {
            let below = text.strip_prefix(&self.root)?;
            return if below.is_empty() {
                Some(String::new())
            } else {
                below.strip_prefix('/').map(str::to_owned)
            };
        }
        let folder = self.open.get(&call.number(folder?)?)?;
        Some(if folder.path.is_empty() { text } else { format!("{}/{text}", folder.path) })
    }

    fn find(&self, path: &str) -> Result<Inode, String> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        parts
            .try_fold(ROOT, |folder, name| self.live.entry(folder, name))
            .ok_or_else(|| format!("unknown path {path}"))
    }

    fn parent(&self, path: &str) -> Result<(Inode, String), String> {
        let (folder, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(folder)?, name.trim_end_matches('/').to_owned()))
    }

    fn length(&self, file: Inode) -> u64 {
        self.live.file(file).map_or(0, |content| content.length())
    }

    fn push(&mut self, operation: Operation) {
        apply_fully(&mut self.live, &operation);
        self.operations.push(operation);
    }

    fn open(&mut self, call: &SystemCall, path: Option<String>, flags: usize) -> Result<(), String> {
        let Some(path) = path else {
            self.open.remove(&call.result);
            return Ok(());
        };
        let appends = call.has(flags, "O_APPEND");
        let inode = if path == self.marks {
            MARKS_INODE
        } else {
            let (folder, name) = self.parent(&path)?;
            let node = if path.is_empty() { Some(ROOT) } else { self.live.entry(folder, &name) };
            match node {
                Some(inode) => {
                    if call.has(flags, "O_TRUNC") && self.length(inode) > 0 {
                        self.push(Operation::Length { file: inode, length: 0 });
                    }
                    inode
                }
                None if call.has(flags, "O_CREAT") => {
                    let inode = self.live.add_file();
                    self.folders.push(false);
                    self.push(Operation::Names { folder, changes: vec![(name, Some(inode))] });
                    inode
                }
                None => return Err(format!("{path} was opened but never created")),
            }
        };
        self.open.insert(call.result, OpenInode { inode, path, position: Rc::default(), appends });
        Ok(())
    }

    fn write(&mut self, file: &OpenInode, index: u64, call: &SystemCall) -> Result<(), String> {
        let mut data = call.bytes(1);
        let length = usize::try_from(call.result).map_err(|_| "a write of a negative length")?;
        if data.len() < length {
            return Err(format!("strace shows {} of {length} bytes of a write", data.len()));
        }
        data.truncate(length);
        if file.inode == MARKS_INODE {
            self.operations.push(Operation::Mark(String::from_utf8_lossy(&data).into_owned()));
        } else {
            self.push(Operation::Write { file: file.inode, at: index, data });
        }
        Ok(())
    }

    fn make_folder(&mut self, path: Option<String>) -> Result<(), String> {
        let Some(path) = path else { return Ok(()) };
        let (folder, name) = self.parent(&path)?;
        let inode = self.live.add_folder();
        self.folders.push(true);
        self.push(Operation::Names { folder, changes: vec![(name, Some(inode))] });
        Ok(())
    }

    fn remove(&mut self, path: Option<String>) -> Result<(), String> {
        let Some(path) = path else { return Ok(()) };
        let (folder, name) = self.parent(&path)?;
        self.push(Operation::Names { folder, changes: vec![(name, None)] });
        Ok(())
    }

    fn rename(&mut self, from: Option<String>, to: Option<String>) -> Result<(), String> {
        let (from, to) = match (from, to) {
            (Some(from), Some(to)) => (from, to),
            (None, None) => return Ok(()),
            _ => return Err("a file was moved into or out of the recorded folder".to_owned()),
        };
        let renamed = self.find(&from)?;
        let ((old_folder, old), (folder, name)) = (self.parent(&from)?, self.parent(&to)?);
        let added = (name, Some(renamed));
        if old_folder == folder {
            self.push(Operation::Names { folder, changes: vec![(old, None), added] });
        } else {
            self.push(Operation::Names { folder, changes: vec![added] });
            self.push(Operation::Names { folder: old_folder, changes: vec![(old, None)] });
        }
        Ok(())
    }
}

/// Applies an operation to an image. An fsync and a mark change nothing.
pub(crate) fn apply_fully(image: &mut DiskImage, operation: &Operation) {
    match operation {
        Operation::Names { folder, changes } => image.change_names(*folder, changes),
        Operation::Write { file, at, data } => image.change_file(*file, |content| content.write(*at, data)),
        Operation::Length { file, length } => image.change_file(*file, |content| content.set_length(*length)),
        Operation::Sync { .. } | Operation::Mark(_) => {}
    }
}
