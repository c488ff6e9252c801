//! The files of a release, in a folder, in a zip archive, or as one file. Files are identified by their names
//! without folders, because the layouts of a publisher differ only in their folders.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::progress::{CountingReader, ProgressMeter, SourceProgress};

/// Size of the buffers, in bytes.
const BUFFER: usize = 256 << 10;
/// Maximum size of an unpacked file, in bytes, so that a small archive cannot fill the memory.
const LARGEST: u64 = 64 << 30;

pub(super) struct ReleaseSource<'m> {
    /// Path of the release, for messages about the whole release.
    path: PathBuf,
    names: Vec<String>,
    place: SourceKind<'m>,
    pass: SourceProgress<'m>,
}

enum SourceKind<'m> {
    Folder(PathBuf),
    Archive(Box<ZipArchive<CountingReader<'m, BufReader<File>>>>),
    File,
    /// Names and contents of files in memory.
    Memory(Vec<(String, Vec<u8>)>),
}

impl<'m> ReleaseSource<'m> {
    /// Lists the names of the files in a path.
    ///
    /// # Errors
    /// Returns the error of the file system or the archive.
    pub fn open(path: &Path) -> io::Result<Self> {
        let new = |names, place, pass| Self { path: path.to_owned(), names, place, pass };
        if fs::metadata(path)?.is_dir() {
            let mut names = Vec::new();
            collect_names(path, Path::new(""), &mut names)?;
            names.sort();
            return Ok(new(names, SourceKind::Folder(path.to_owned()), SourceProgress::default()));
        }
        let mut file = BufReader::with_capacity(BUFFER, File::open(path)?);
        // A workbook is a zip archive, too, but one file to people.
        let is_workbook = spreadsheet::is_workbook(&path.to_string_lossy());
        if file.fill_buf()?.starts_with(b"PK\x03\x04") && !is_workbook {
            let torn = |error: ZipError| {
                let reason = format!("the zip archive cannot be read ({error}); copy it again");
                io::Error::new(io::ErrorKind::InvalidData, reason)
            };
            let pass = SourceProgress::default();
            let archive = ZipArchive::new(pass.counting_reader(file)).map_err(torn)?;
            let names: Result<Vec<_>, _> =
                archive.file_names().map(|name| name.map(Cow::into_owned)).collect();
            let mut names = names.map_err(torn)?;
            names.retain(|name| !name.ends_with('/'));
            names.sort();
            return Ok(new(names, SourceKind::Archive(Box::new(archive)), pass));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(new(vec![name], SourceKind::File, SourceProgress::default()))
    }

    /// A source of files in memory.
    pub fn in_memory(files: Vec<(String, Vec<u8>)>) -> Self {
        let mut names: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        Self {
            path: PathBuf::from("memory"),
            names,
            place: SourceKind::Memory(files),
            pass: SourceProgress::default(),
        }
    }

    /// Sends later progress reports to this meter.
    pub fn report_to(&mut self, meter: &Rc<ProgressMeter<'m>>) {
        self.pass.report_to(meter.clone());
    }

    /// The size of some files on disk: the compressed size if they are compressed.
    ///
    /// # Errors
    /// Returns the error of the file system or the archive.
    pub fn size(&mut self, names: &[String]) -> io::Result<u64> {
        let size = |name: &String| match &mut self.place {
            SourceKind::Folder(folder) => Ok(fs::metadata(folder.join(name))?.len()),
            SourceKind::Archive(archive) => {
                let index = archive.index_for_name(name).ok_or(io::ErrorKind::NotFound)?;
                Ok(archive.by_index_raw(index)?.compressed_size())
            }
            SourceKind::File => Ok(fs::metadata(&self.path)?.len()),
            // Files in memory need no progress report.
            SourceKind::Memory(_) => Ok(0),
        };
        names.iter().map(size).sum()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The paths of the files within the release.
    pub fn file_names(&self) -> &[String] {
        &self.names
    }

    /// The first file with this name, ignoring case and folders.
    pub fn file_named(&self, name: &str) -> Option<String> {
        self.names.iter().find(|file| base_name(file).eq_ignore_ascii_case(name)).cloned()
    }

    /// The files whose name without folders passes a test.
    pub fn files_named(&self, test: impl Fn(&str) -> bool) -> Vec<String> {
        self.names.iter().filter(|name| test(base_name(name))).cloned().collect()
    }

    /// Passes the input of an import to `take`, as it is on disk: for a folder the names and contents of
    /// these files, otherwise the archive or file itself.
    ///
    /// # Errors
    /// Returns the error of the file system.
    pub fn pass_content(&self, names: &[String], take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        match &self.place {
            SourceKind::Folder(folder) => {
                for name in names {
                    let file = File::open(folder.join(name))?;
                    // The name is prefixed with its length, so that different files cannot produce the same
                    // bytes.
                    take(&(base_name(name).len() as u64).to_le_bytes());
                    take(base_name(name).as_bytes());
                    take(&file.metadata()?.len().to_le_bytes());
                    self.pass.begin_file(name);
                    pass_in_pieces(self.pass.counting_reader(file), take)?;
                }
                Ok(())
            }
            SourceKind::Archive(_) | SourceKind::File => {
                self.pass.begin_file(&self.path.file_name().unwrap_or_default().to_string_lossy());
                pass_in_pieces(self.pass.counting_reader(File::open(&self.path)?), take)
            }
            SourceKind::Memory(files) => {
                files.iter().for_each(|(_, bytes)| take(bytes));
                Ok(())
            }
        }
    }

    /// The number of bytes that [`pass_content`](Self::pass_content) reads.
    ///
    /// # Errors
    /// Returns the error of the file system.
    pub fn content_size(&mut self, names: &[String]) -> io::Result<u64> {
        match &self.place {
            SourceKind::Archive(_) => Ok(fs::metadata(&self.path)?.len()),
            _ => self.size(names),
        }
    }

    /// Opens a file and unpacks its content while it is read.
    ///
    /// # Errors
    /// Returns the error of the file system or the archive.
    pub fn read(&mut self, name: &str) -> io::Result<Box<dyn BufRead + '_>> {
        let pass = &self.pass;
        let reader: Box<dyn Read + '_> = match &mut self.place {
            SourceKind::Folder(folder) => Box::new(pass.counting_reader(File::open(folder.join(name))?)),
            SourceKind::Archive(archive) => Box::new(archive.by_name(name)?.take(LARGEST)),
            SourceKind::File => Box::new(pass.counting_reader(File::open(&self.path)?)),
            SourceKind::Memory(files) => {
                let file = files.iter().find(|(key, _)| key == name);
                return Ok(Box::new(file.map(|(_, bytes)| bytes.as_slice()).ok_or(io::ErrorKind::NotFound)?));
            }
        };
        pass.begin_file(name);
        let mut reader = BufReader::with_capacity(BUFFER, reader);
        if reader.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            let unpacked = MultiGzDecoder::new(reader).take(LARGEST);
            return Ok(Box::new(BufReader::with_capacity(BUFFER, unpacked)));
        }
        Ok(Box::new(reader))
    }
}

/// Passes a file to `take` in pieces.
fn pass_in_pieces(file: impl Read, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut file = BufReader::with_capacity(BUFFER, file);
    loop {
        let piece = file.fill_buf()?;
        let length = piece.len();
        if length == 0 {
            return Ok(());
        }
        take(piece);
        file.consume(length);
    }
}

/// The name of a file without its folders.
pub(super) fn base_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn collect_names(root: &Path, below: &Path, names: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        // Links to folders are not followed, because they may form a cycle.
        if entry.file_type()?.is_dir() {
            collect_names(root, &name, names)?;
        } else {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
