//! The content of a disk: files and folders by number. Copies share the bytes of files until they are
//! changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

/// Number of a file or folder on a disk.
pub type Inode = usize;
pub const ROOT: Inode = 0;
/// The smallest unit that a disk writes, in bytes.
pub const SECTOR: u64 = 512;

/// The bytes of a file.
#[derive(Debug, Clone, Default)]
pub struct FileContent {
    /// The bytes up to the last one that was written. The rest of the file consists of zeros.
    bytes: Vec<u8>,
    length: u64,
}

/// A file or a folder.
#[derive(Debug, Clone)]
pub enum Node {
    File(Arc<FileContent>),
    /// A folder with the numbers of its entries by name.
    Folder(Arc<BTreeMap<String, Inode>>),
}

#[derive(Debug, Clone)]
pub struct DiskImage {
    nodes: Vec<Node>,
}

impl FileContent {
    /// The length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The bytes up to the last one that is not zero.
    pub fn without_zeros(&self) -> &[u8] {
        let used = self.bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        &self.bytes[..used]
    }

    /// Sets the length. Bytes beyond it are lost, and new ones are zero.
    pub fn set_length(&mut self, length: u64) {
        self.length = length;
        self.bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
    }

    /// Writes bytes at an offset and extends the file if necessary.
    pub fn write(&mut self, index: u64, data: &[u8]) {
        let index = usize::try_from(index).expect("recorded files fit into memory");
        let end = index + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[index..end].copy_from_slice(data);
        self.length = self.length.max(end as u64);
    }
}

impl DiskImage {
    /// An image with an empty root folder.
    pub fn new() -> Self {
        Self { nodes: vec![Node::Folder(Arc::default())] }
    }

    /// Adds an empty file without a name, and returns its number.
    pub fn add_file(&mut self) -> Inode {
        self.nodes.push(Node::File(Arc::default()));
        self.nodes.len() - 1
    }

    /// Adds an empty folder without a name, and returns its number.
    pub fn add_folder(&mut self) -> Inode {
        self.nodes.push(Node::Folder(Arc::default()));
        self.nodes.len() - 1
    }

    /// The content of a file, or `None` for a folder.
    pub fn file(&self, inode: Inode) -> Option<&FileContent> {
        match &self.nodes[inode] {
            Node::File(content) => Some(content),
            Node::Folder(_) => None,
        }
    }

    pub fn entry(&self, folder: Inode, name: &str) -> Option<Inode> {
        match &self.nodes[folder] {
            Node::Folder(entries) => entries.get(name).copied(),
            Node::File(_) => None,
        }
    }

    /// Changes the content of a file. Has no effect on a folder.
    pub fn change_file(&mut self, inode: Inode, change: impl FnOnce(&mut FileContent)) {
        if let Node::File(content) = &mut self.nodes[inode] {
            change(Arc::make_mut(content));
        }
    }

    /// Adds, replaces or removes entries of a folder. Has no effect on a file.
    pub fn change_names(&mut self, folder: Inode, changes: &[(String, Option<Inode>)]) {
        if let Node::Folder(entries) = &mut self.nodes[folder] {
            let entries = Arc::make_mut(entries);
            for (name, inode) in changes {
                match inode {
                    Some(inode) => entries.insert(name.clone(), *inode),
                    None => entries.remove(name),
                };
            }
        }
    }

    /// A hash of all files and folders below the root.
    pub fn digest(&self) -> u128 {
        let mut hasher = Xxh3::new();
        self.walk(&mut |path, node| {
            hasher.update(path.as_bytes());
            if let Node::File(content) = node {
                hasher.update(&content.length.to_le_bytes());
                hasher.update(content.without_zeros());
            }
            hasher.update(b"\0");
            Ok(())
        })
        .expect("hashing does not fail");
        hasher.digest128()
    }

    /// Writes all files and folders to a folder, which must be empty. Zeros at the end of a file become a
    /// hole.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn write_to(&self, folder: &Path) -> io::Result<()> {
        self.walk(&mut |path, node| {
            let path = folder.join(path);
            match node {
                Node::Folder(_) => fs::create_dir_all(path),
                Node::File(content) => {
                    let mut file = File::create(path)?;
                    file.write_all(&content.bytes)?;
                    if content.length > content.bytes.len() as u64 {
                        file.set_len(content.length)
                    } else {
                        Ok(())
                    }
                }
            }
        })
    }

    /// Calls `visit` with the path of each file and folder, a folder before its entries. The root has an
    /// empty path.
    pub fn walk(&self, visit: &mut impl FnMut(&str, &Node) -> io::Result<()>) -> io::Result<()> {
        self.walk_below(ROOT, String::new(), visit)
    }

    fn walk_below(
        &self,
        inode: Inode,
        path: String,
        visit: &mut impl FnMut(&str, &Node) -> io::Result<()>,
    ) -> io::Result<()> {
        visit(&path, &self.nodes[inode])?;
        if let Node::Folder(entries) = &self.nodes[inode] {
            for (name, inode) in entries.iter() {
                let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                self.walk_below(*inode, below, visit)?;
            }
        }
        Ok(())
    }
}

impl Default for DiskImage {
    fn default() -> Self {
        Self::new()
    }
}
