//! Which operations an fsync makes durable.

use crate::disk::{DiskImage, Inode};
use crate::recording::{Operation, Recording, apply_fully};

/// When names (creation, rename and removal of files and folders) become durable. The content of a file, and
/// its length, become durable with an fsync of the file. Until then each write can be missing or torn,
/// whatever happened to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// Names are durable after an fsync of their folder. Until then, each of them can be missing, whatever
    /// happened to the others. POSIX guarantees no more.
    Strict,
    /// Names become durable in the order of the operations, as in the journals of ext4 and XFS. An fsync of a
    /// file or folder makes its own last name durable, and thereby all earlier ones.
    Ordered,
}

/// The operations of a recording, with the time from which each of them is durable.
pub struct DurabilityModel<'a> {
    pub recording: &'a Recording,
    pub rule: NameRule,
    /// For each operation, the number of the fsync after which it is durable, or `usize::MAX`.
    durable_at: Vec<usize>,
    /// The content of the disk with the durable operations only.
    durable: DiskImage,
    /// Numbers of the operations before the position that are not durable.
    pending: Vec<usize>,
    position: usize,
}

impl Operation {
    /// `true` for changes of names.
    pub(crate) fn is_name(&self) -> bool {
        matches!(self, Self::Names { .. })
    }

    /// The file or folder that must be synced, or `None` if the operation needs no fsync.
    fn inode(&self) -> Option<Inode> {
        match self {
            Self::Names { folder: inode, .. }
            | Self::Write { file: inode, .. }
            | Self::Length { file: inode, .. } => Some(*inode),
            Self::Sync { .. } | Self::Mark(_) => None,
        }
    }

    /// `true` if the operation changes a name in this folder, or the name of this file or folder.
    fn is_name_of(&self, inode: Inode) -> bool {
        let Self::Names { folder, changes } = self else { return false };
        *folder == inode || changes.iter().any(|(_, changed)| *changed == Some(inode))
    }
}

impl<'a> DurabilityModel<'a> {
    /// Creates the model of a recording, at the position before the first operation.
    pub fn new(recording: &'a Recording, rule: NameRule) -> Self {
        let operations = &recording.operations;
        let mut durable_at = vec![usize::MAX; operations.len()];
        for (index, operation) in operations.iter().enumerate() {
            let Operation::Sync { inode, covers, .. } = operation else { continue };
            let last_name = match rule {
                NameRule::Strict => None,
                NameRule::Ordered => operations[..*covers].iter().rposition(|one| one.is_name_of(*inode)),
            };
            for (number, operation) in operations[..*covers].iter().enumerate() {
                let is_earlier_name = operation.is_name() && last_name.is_some_and(|last| number <= last);
                if is_earlier_name || operation.inode() == Some(*inode) {
                    durable_at[number] = durable_at[number].min(index);
                }
            }
        }
        let mut durable = DiskImage::new();
        for is_folder in recording.folders.iter().skip(1) {
            if *is_folder {
                durable.add_folder()
            } else {
                durable.add_file()
            };
        }
        Self { recording, rule, durable_at, durable, pending: Vec::new(), position: 0 }
    }

    /// Advances to the position before an operation. Positions must not decrease.
    pub fn advance(&mut self, position: usize) {
        let operations = &self.recording.operations;
        while self.position < position {
            let number = self.position;
            match &operations[number] {
                Operation::Sync { .. } => {
                    let durable_at = &self.durable_at;
                    let (made, left) =
                        self.pending.iter().partition(|&&pending| durable_at[pending] <= number);
                    self.pending = left;
                    let past: Vec<usize> = made;
                    past.iter().for_each(|index| apply_fully(&mut self.durable, &operations[*index]));
                }
                Operation::Mark(_) => {}
                _ => self.pending.push(number),
            }
            self.position += 1;
        }
    }

    /// The content of the disk without the pending operations.
    pub fn durable(&self) -> &DiskImage {
        &self.durable
    }

    /// The numbers of the operations that a power cut at the current position may undo, in order.
    pub fn pending(&self) -> &[usize] {
        &self.pending
    }
}
