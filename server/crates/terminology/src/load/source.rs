//! Where a release lies: a folder, a zip archive or one file. Its files are known by their names alone; the layouts
//! that makers publish differ in folders, not in the names that count.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use zip::ZipArchive;
use zip::result::ZipError;

use super::meter::{Counted, Meter, Pass};

/// Size of the buffers, in bytes.
const BUFFER: usize = 256 << 10;
/// A release may unpack to this much, so that a small archive cannot fill the memory with endless lines.
const LARGEST: u64 = 64 << 30;

/// The files of a release.
pub(super) struct Source<'m> {
    /// The path that was given, for what has no other name.
    path: PathBuf,
    names: Vec<String>,
    place: Place<'m>,
    pass: Pass<'m>,
}

enum Place<'m> {
    Folder(PathBuf),
    Archive(Box<ZipArchive<Counted<'m, BufReader<File>>>>),
    File,
    /// Names and contents, unpacked.
    Memory(Vec<(String, Vec<u8>)>),
}

impl<'m> Source<'m> {
    /// Looks at the names of the files below a path.
    ///
    /// # Errors
    /// Of the file system or the archive.
    pub fn open(path: &Path) -> io::Result<Self> {
        let new = |names, place, pass| Self { path: path.to_owned(), names, place, pass };
        if fs::metadata(path)?.is_dir() {
            let mut names = Vec::new();
            collect(path, Path::new(""), &mut names)?;
            names.sort();
            return Ok(new(names, Place::Folder(path.to_owned()), Pass::default()));
        }
        let mut file = BufReader::with_capacity(BUFFER, File::open(path)?);
        if file.fill_buf()?.starts_with(b"PK\x03\x04") {
            let torn = |error: ZipError| {
                let why = format!("a zip archive that cannot be read ({error}); copy it again");
                io::Error::new(io::ErrorKind::InvalidData, why)
            };
            let pass = Pass::default();
            let archive = ZipArchive::new(pass.count(file)).map_err(torn)?;
            let names: Result<Vec<_>, _> =
                archive.file_names().map(|name| name.map(Cow::into_owned)).collect();
            let mut names = names.map_err(torn)?;
            names.retain(|name| !name.ends_with('/'));
            names.sort();
            return Ok(new(names, Place::Archive(Box::new(archive)), pass));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(new(vec![name], Place::File, Pass::default()))
    }

    /// Files that are in memory.
    pub fn in_memory(files: Vec<(String, Vec<u8>)>) -> Self {
        let mut names: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        Self { path: PathBuf::from("memory"), names, place: Place::Memory(files), pass: Pass::default() }
    }

    /// From now on, tells this meter what is read.
    pub fn tell(&mut self, meter: &Rc<Meter<'m>>) {
        self.pass.tell(meter.clone());
    }

    /// Bytes of some of the files, as they lie on the disk: packed where they are packed.
    ///
    /// # Errors
    /// Of the file system or the archive.
    pub fn size(&mut self, names: &[String]) -> io::Result<u64> {
        let size = |name: &String| match &mut self.place {
            Place::Folder(folder) => Ok(fs::metadata(folder.join(name))?.len()),
            Place::Archive(archive) => {
                let at = archive.index_for_name(name).ok_or(io::ErrorKind::NotFound)?;
                Ok(archive.by_index_raw(at)?.compressed_size())
            }
            Place::File => Ok(fs::metadata(&self.path)?.len()),
            // Nobody waits for what is in memory.
            Place::Memory(_) => Ok(0),
        };
        names.iter().map(size).sum()
    }

    /// The path that was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files, with their folders.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The files whose own name, without folders, passes a test.
    pub fn named(&self, test: impl Fn(&str) -> bool) -> Vec<String> {
        self.names.iter().filter(|name| test(base(name))).cloned().collect()
    }

    /// Hands over what an import reads here, as it lies on the disk: of a folder the own names and the contents of these
    /// files, else the archive or file itself.
    ///
    /// # Errors
    /// Of the file system.
    pub fn content(&self, names: &[String], take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        match &self.place {
            Place::Folder(folder) => {
                for name in names {
                    let file = File::open(folder.join(name))?;
                    // With lengths before them, no name or content can be taken for part of another.
                    take(&(base(name).len() as u64).to_le_bytes());
                    take(base(name).as_bytes());
                    take(&file.metadata()?.len().to_le_bytes());
                    self.pass.begin(name);
                    whole(self.pass.count(file), take)?;
                }
                Ok(())
            }
            Place::Archive(_) | Place::File => {
                self.pass.begin(&self.path.file_name().unwrap_or_default().to_string_lossy());
                whole(self.pass.count(File::open(&self.path)?), take)
            }
            Place::Memory(files) => {
                files.iter().for_each(|(_, bytes)| take(bytes));
                Ok(())
            }
        }
    }

    /// Bytes that [`content`](Self::content) reads of these files.
    ///
    /// # Errors
    /// Of the file system.
    pub fn content_size(&mut self, names: &[String]) -> io::Result<u64> {
        match &self.place {
            Place::Archive(_) => Ok(fs::metadata(&self.path)?.len()),
            _ => self.size(names),
        }
    }

    /// Opens one of the files, unpacked.
    ///
    /// # Errors
    /// Of the file system or the archive.
    pub fn read(&mut self, name: &str) -> io::Result<Box<dyn BufRead + '_>> {
        let pass = &self.pass;
        let reader: Box<dyn Read + '_> = match &mut self.place {
            Place::Folder(folder) => Box::new(pass.count(File::open(folder.join(name))?)),
            Place::Archive(archive) => Box::new(archive.by_name(name)?.take(LARGEST)),
            Place::File => Box::new(pass.count(File::open(&self.path)?)),
            Place::Memory(files) => {
                let found = files.iter().find(|(known, _)| known == name);
                return Ok(Box::new(
                    found.map(|(_, bytes)| bytes.as_slice()).ok_or(io::ErrorKind::NotFound)?,
                ));
            }
        };
        pass.begin(name);
        let mut reader = BufReader::with_capacity(BUFFER, reader);
        if reader.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            let unpacked = MultiGzDecoder::new(reader).take(LARGEST);
            return Ok(Box::new(BufReader::with_capacity(BUFFER, unpacked)));
        }
        Ok(Box::new(reader))
    }
}

/// Hands over a file, piece by piece.
fn whole(file: impl Read, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
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
pub(super) fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn collect(root: &Path, below: &Path, names: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        // Links to folders are not followed: they may lead in a circle.
        if entry.file_type()?.is_dir() {
            collect(root, &name, names)?;
        } else {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
