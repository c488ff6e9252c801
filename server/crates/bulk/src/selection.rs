//! Which resources belong to a part, in an order that a snapshot fixes: the store's at system level;
//! by patient, then the store's, at group level. Pages are small, so memory does not grow with the
//! export.

use store::{Limit, ResourceKey, Scan, Seq, Store, StoreError, Version, Versions as _};

use crate::job::Job;

/// How much of the store is held at once.
const PAGE: Limit = Limit { count: 500, bytes: 512 * 1024 };

/// Walks one type of a job.
pub(crate) struct Selection<'a> {
    store: &'a Store,
    job: &'a Job,
    kind: &'a str,
    /// `None` at system level; sorted.
    members: Option<&'a [String]>,
    /// The member whose compartment is being walked.
    member: usize,
    after: Option<String>,
    done: bool,
}

impl<'a> Selection<'a> {
    pub fn new(store: &'a Store, job: &'a Job, kind: &'a str, members: Option<&'a [String]>) -> Self {
        Self { store, job, kind, members, member: 0, after: None, done: false }
    }

    /// The next resources; `None` at the end. A page may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<Version>>, StoreError> {
        if self.done {
            return Ok(None);
        }
        let scan = Scan::at(self.job.seq()).limit(PAGE).after(self.after.as_deref());
        let by_member = self.members.filter(|_| self.kind != "Provenance");
        let page = match by_member {
            None => self.store.scan_kind(self.kind, scan).await?,
            Some(members) => match members.get(self.member) {
                None => return Ok(None),
                Some(id) => self.store.scan_compartment(&format!("Patient/{id}"), self.kind, scan).await?,
            },
        };
        let member = self.member;
        match (page.next, by_member) {
            (Some(next), _) => self.after = Some(next),
            (None, Some(_)) => (self.after, self.member) = (None, self.member + 1),
            (None, None) => self.done = true,
        }
        let mut chosen = Vec::with_capacity(page.versions.len());
        for version in page.versions {
            if self.is_chosen(&version, member).await? {
                chosen.push(version);
            }
        }
        Ok(Some(chosen))
    }

    async fn is_chosen(&self, version: &Version, member: usize) -> Result<bool, StoreError> {
        let parameters = &self.job.parameters;
        if parameters.since.is_some_and(|since| version.updated <= since)
            || parameters.until.is_some_and(|until| version.updated >= until)
        {
            return Ok(false);
        }
        match self.members {
            None => Ok(true),
            Some(members) if self.kind == "Provenance" => {
                self.is_provenance_of_exported(version, members).await
            }
            // A resource in the compartments of two members is written for the first of them.
            Some(members) => Ok(first_member(version, members) == Some(member)),
        }
    }

    /// Is one of the targets a member, or a resource in the compartment of one?
    async fn is_provenance_of_exported(
        &self,
        version: &Version,
        members: &[String],
    ) -> Result<bool, StoreError> {
        for target in &version.compartments {
            let Some((kind, id)) = target.split_once('/') else { continue };
            if kind == "Patient" {
                if members.binary_search_by(|member| member.as_str().cmp(id)).is_ok() {
                    return Ok(true);
                }
                continue;
            }
            let found = self.store.read(&ResourceKey::new(kind, id), self.seq()).await?;
            if found.is_some_and(|target| !target.is_deleted() && first_member(&target, members).is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn seq(&self) -> Seq {
        self.job.seq()
    }
}

/// The first member whose compartment holds the resource.
fn first_member(version: &Version, members: &[String]) -> Option<usize> {
    let ids = version.compartments.iter().filter_map(|compartment| compartment.strip_prefix("Patient/"));
    ids.filter_map(|id| members.binary_search_by(|member| member.as_str().cmp(id)).ok()).min()
}
