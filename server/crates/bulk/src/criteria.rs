//! What a job asks for, made ready for its parts: whose resources, by which searches, with which elements.

use std::sync::Arc;

use jiff::Timestamp;
use store::{Limit, ResourceKey, Seq, Store, StoreError, Versions as _};
use tokio::sync::Mutex;

use crate::elements::Projection;
use crate::group::{Gathering, Members};
use crate::job::Job;
use crate::kick_off::{Level, Role, role};
use crate::selection::Cursor;
use crate::supporting::References;
use resources::filter::TypeFilter;

/// Why the members of a Group cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MembersError {
    /// The Group is not there at that moment.
    #[error("Group/{0} is not there")]
    NoGroup(String),
    /// What the Group says cannot be read.
    #[error("{0}")]
    Bad(String),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How Groups are read.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    /// Address of the FHIR side.
    pub fhir_base: String,
    /// Are members of Groups within a Group its members?
    pub nested_groups: bool,
}

impl Reading {
    /// The members of a Group, of the versions at `seq`, as of `at`. A Group within itself is read once; one that is not
    /// there has nobody.
    pub async fn members(
        &self,
        store: &Store,
        id: &str,
        seq: Seq,
        at: Timestamp,
    ) -> Result<Members, MembersError> {
        let mut gathering = Gathering::new(&self.fhir_base, at);
        let mut groups = vec![id.to_owned()];
        let mut next = 0;
        while let Some(group) = groups.get(next) {
            let found = store.read(&ResourceKey::new("Group", group), seq).await?;
            match found.and_then(|version| version.body) {
                Some(body) => gathering.add(&body).map_err(MembersError::Bad)?,
                None if next == 0 => return Err(MembersError::NoGroup(id.to_owned())),
                None => {}
            }
            let nested = gathering.take_nested();
            for group in nested {
                if self.nested_groups && !groups.contains(&group) {
                    groups.push(group);
                }
            }
            next += 1;
        }
        Ok(gathering.finish())
    }
}

/// Whose resources are exported.
#[derive(Debug)]
pub(crate) enum Whose {
    /// Everybody's and nobody's.
    All,
    /// Those in the compartment of any Patient.
    Patients,
    /// Those in the compartments of these.
    Members(Arc<Members>),
}

/// What a job asks for, made ready.
#[derive(Debug)]
pub(crate) struct Criteria {
    pub whose: Whose,
    pub filters: Vec<TypeFilter>,
    pub fhir_base: String,
    /// What supports the exported resources, as far as it is known.
    pub supporting: Mutex<Supporting>,
}

/// How far the supporting resources are known, and which types have been walked for it.
#[derive(Debug, Default)]
pub(crate) struct Supporting {
    pub references: References,
    pub stage: Stage,
}

/// Where the walk for supporting resources is.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// Within the exported types.
    #[default]
    Begin,
    /// At this type of the job.
    Main { kind: usize, at: Cursor },
    /// At this type of the job, in a round that began with so many known.
    Round { kind: usize, after: Option<String>, known: usize },
    /// All are known.
    Done,
}

impl Criteria {
    /// By the record of a job.
    pub async fn of(job: &Job, store: &Store, reading: &Reading) -> Result<Self, MembersError> {
        let patients = job.parameters.patients.as_ref();
        let whose = match (&job.level, patients) {
            (Level::System, _) => Whose::All,
            (Level::Patient, None) => Whose::Patients,
            (Level::Patient, Some(patients)) => Whose::Members(Arc::new(patients.iter().collect())),
            (Level::Group(id), patients) => {
                let members = reading.members(store, id, job.seq(), job.transaction_time).await?;
                Whose::Members(Arc::new(match patients {
                    None => members,
                    Some(patients) => patients.iter().filter(|id| members.position(id).is_some()).collect(),
                }))
            }
        };
        let read = |text: &String| TypeFilter::read(text, &reading.fhir_base, job.transaction_time);
        let filters =
            job.parameters.filters.iter().map(read).collect::<Result<_, _>>().map_err(MembersError::Bad)?;
        Ok(Self { whose, filters, fhir_base: reading.fhir_base.clone(), supporting: Mutex::default() })
    }

    /// What stays of the resources of a type; `None` is all.
    pub fn projection(&self, job: &Job, kind: &str) -> Option<Projection> {
        let elements = &job.parameters.elements;
        (!elements.is_empty()).then(|| Projection::new(kind, elements))
    }

    /// Are there searches that a resource of the type must meet one of?
    pub fn has_filter(&self, kind: &str) -> bool {
        self.filters.iter().any(|filter| filter.kind == kind)
    }

    /// Does a resource of the type meet one of the type's searches, where there are any?
    pub fn is_met(&self, kind: &str, resource: &[u8]) -> bool {
        let mut filters = self.filters.iter().filter(|filter| filter.kind == kind).peekable();
        filters.peek().is_none() || filters.any(|filter| filter.is_met(resource))
    }

    /// Did a resource that is deleted at `seq` meet one of them in any of its versions? An earlier export may have given
    /// that one, and nobody who keeps it is told that the next version met none.
    pub async fn was_met(&self, store: &Store, key: &ResourceKey, seq: Seq) -> Result<bool, StoreError> {
        if !self.has_filter(&key.kind) {
            return Ok(true);
        }
        let mut before = seq;
        loop {
            let versions = store.history(key, before, Limit::default()).await?;
            let Some(last) = versions.last() else { return Ok(false) };
            before = last.seq;
            if versions.iter().filter_map(|v| v.body.as_deref()).any(|body| self.is_met(&key.kind, body)) {
                return Ok(true);
            }
        }
    }
}

/// Why resources of a type are in a job.
pub(crate) fn role_in(job: &Job, kind: &str) -> Role {
    role(&job.level, &job.parameters, kind).unwrap_or(Role::Main)
}
