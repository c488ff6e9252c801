//! The references to the heads of a batch.

/// A reference of a resource to a head.
#[derive(Clone, Copy)]
pub(super) struct HeadReference {
    /// Index of the head in the batch.
    pub(super) head: u32,
    /// Index of the resource's type in the job.
    pub(super) kind: u32,
    /// Offset and length of the resource's id in [`CollectedReferences::ids`].
    pub(super) id: (u32, u32),
}

/// References to heads. Ids lie in one text, because a string for each would cost several times the memory.
#[derive(Default)]
pub(super) struct CollectedReferences {
    pub(super) references: Vec<HeadReference>,
    pub(super) ids: String,
}

impl CollectedReferences {
    pub(super) fn bytes(&self) -> usize {
        self.ids.len() + self.references.len() * size_of::<HeadReference>()
    }

    pub(super) fn add(&mut self, heads: impl Iterator<Item = u32>, kind: usize, id: &str) {
        let span = (self.ids.len() as u32, id.len() as u32);
        self.ids.push_str(id);
        self.references.extend(heads.map(|head| HeadReference { head, kind: kind as u32, id: span }));
    }

    /// Removes the references to heads from this index on, and their ids.
    pub(super) fn truncate_heads(&mut self, end: usize) {
        self.references.retain(|reference| (reference.head as usize) < end);
        let mut ids = String::new();
        for reference in &mut self.references {
            let (start, length) = (reference.id.0 as usize, reference.id.1);
            reference.id = (ids.len() as u32, length);
            ids.push_str(&self.ids[start..start + length as usize]);
        }
        self.ids = ids;
    }

    /// The indexes of the references to one head.
    pub(super) fn of_head(&self, head: usize) -> std::ops::Range<usize> {
        let start = self.references.partition_point(|reference| (reference.head as usize) < head);
        let end = self.references.partition_point(|reference| (reference.head as usize) <= head);
        start..end
    }

    /// Type, as an index in the job, and id of the resource that has a reference.
    pub fn resource(&self, index: usize) -> (usize, &str) {
        let reference = self.references[index];
        let (start, length) = (reference.id.0 as usize, reference.id.1 as usize);
        (reference.kind as usize, &self.ids[start..start + length])
    }
}
