//! The checks of a kick-off request, and its job.

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use store::{Expect, Ledger as _, LedgerWrite, ResourceKey, Seq, StoreError, Versions as _};

use super::{Bulk, InFlight, random_id};
use crate::group::Exclusion;
use crate::job::{Job, JobState, Lease, open_jobs};
use crate::plan::erased_since::check_erasures;
use crate::plan::export_plan::ExportPlan;
use crate::plan::joined_types::joined_since;
use crate::plan::membership::GroupsRead;
use crate::plan::restores::check_restores;
use crate::request::exported_kinds;
use crate::request::kick_off::{ExportLevel, KickOff, KickOffError};
use crate::request::parameters::{ExportParameters, ParameterRules, check_parameters};

/// Maximum number of unfinished jobs of one client. Further kick-offs are rejected with a time to retry.
pub const MAX_CLIENT_EXPORTS: usize = 50;
/// The same maximum for all clients together.
pub const MAX_EXPORTS: usize = 500;

/// Key of the record that each kick-off of several nodes writes, so that they check the limits one after the
/// other.
const LAST_KICK_OFF: &str = "bulk/last-kick-off";

impl Bulk {
    /// Checks a kick-off request, takes the snapshot, creates and starts the job, and returns the job's id.
    ///
    /// # Errors
    /// Returns [`KickOffError`] if the request is rejected. In that case no job is created.
    pub async fn kick_off(&self, request: KickOff, now: Timestamp) -> Result<String, KickOffError> {
        let (fhir_base, supporting) = (&self.worker.reading.fhir_base, self.supporting);
        let rules = ParameterRules { fhir_base, guide: self.guide, supporting, now };
        let mut parameters = check_parameters(&request, rules)?;
        let group = match &request.level {
            ExportLevel::Group(id) => Some(self.check_group(id, request.groups.as_deref(), now).await?),
            _ => None,
        };
        self.check_patients(&request, &mut parameters, group).await?;
        // Two concurrent requests must not both pass the check when only one more job is allowed. Those of
        // this process take turns. Those of several nodes write the same record, and the one that comes too
        // late checks again.
        let _turn = self.kick_offs.lock().await;
        let mut last = self.last_kick_off(now).await?;
        self.check_limits(&request.client_id, now).await?;
        let store = &self.worker.store;
        let snapshot = store.snapshot(now).await?;
        let kinds = exported_kinds::kinds(&request, &parameters, store.kinds(snapshot.seq).await?);
        let lease = Lease { owner: self.owner.clone(), attempt: 1, attempts_without_progress: 0, until: now };
        let mut job = Job::new(
            random_id(&self.clock),
            request.client_id,
            request.level,
            parameters,
            kinds,
            self.guide,
            request.request_url,
            snapshot.seq,
            snapshot.time,
            lease,
        );
        job.group_leavers = self.group_leavers;
        check_erasures(&job, store, &self.worker.reading).await?;
        check_restores(&job, store, now).await?;
        job.joined_since = joined_since(store).await?;
        ExportPlan::choose_indexed_types(&mut job, store, &self.worker.reading.fhir_base).await?;
        loop {
            // The request may have waited for others.
            job.lease.until = (self.clock.now)() + self.worker.lease;
            let mut writes = vec![job.put(Expect::Absent), open_jobs::add(&job.id)];
            writes.extend(last.map(|expect| LedgerWrite::put(LAST_KICK_OFF, "", expect)));
            match store.write(writes, now).await {
                Ok(revisions) => {
                    let id = job.id.clone();
                    self.spawn(job, revisions[0]);
                    return Ok(id);
                }
                Err(StoreError::Conflict { key }) if key == LAST_KICK_OFF => {
                    last = self.last_kick_off(now).await?;
                    self.check_limits(&job.client_id, now).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The condition that no other node has started an export since this call, if several nodes share the
    /// store.
    async fn last_kick_off(&self, now: Timestamp) -> Result<Option<Expect>, StoreError> {
        let store = &self.worker.store;
        if !store.is_shared() {
            return Ok(None);
        }
        let last = store.get(LAST_KICK_OFF, now).await?;
        Ok(Some(last.map_or(Expect::Absent, |last| Expect::Revision(last.revision))))
    }

    /// The unfinished jobs of all nodes: their clients, and the bytes written so far.
    async fn unfinished(&self, now: Timestamp) -> Result<Vec<(String, u64)>, StoreError> {
        if !self.worker.store.is_shared() {
            let running = self.running();
            let jobs = running.values();
            return Ok(jobs.map(|job| (job.client_id.clone(), job.bytes.load(Ordering::Relaxed))).collect());
        }
        let jobs = self.open_jobs(now).await?.into_iter();
        let unfinished = jobs.filter(|(job, _)| job.state == JobState::Running);
        Ok(unfinished.map(|(job, _)| (job.client_id, job.progress.bytes)).collect())
    }

    /// Checks the limits on running jobs for another job of this client.
    async fn check_limits(&self, client_id: &str, now: Timestamp) -> Result<(), KickOffError> {
        let running = self.unfinished(now).await?;
        let of_client = || running.iter().filter(|(client, _)| client == client_id);
        let bytes = |(_, bytes): &(String, u64)| *bytes;
        let InFlight { of_client: most_of_client, of_all: most_of_all } = self.in_flight;
        let reached = |most: Option<u64>, bytes: u64| most.filter(|most| bytes >= *most);
        let reason = if of_client().count() >= MAX_CLIENT_EXPORTS || running.len() >= MAX_EXPORTS {
            "too many exports are running".to_owned()
        } else if let Some(most) = reached(most_of_client, of_client().map(bytes).sum()) {
            format!("the running exports of this client have together reached the limit of {most} bytes")
        } else if let Some(most) = reached(most_of_all, running.iter().map(bytes).sum()) {
            format!("the running exports of all clients have together reached the limit of {most} bytes")
        } else {
            return Ok(());
        };
        Err(KickOffError::TooManyExports { reason, retry_after_s: 10 })
    }

    /// Checks that the client may export the Group, and that the Group has readable members.
    async fn check_group(
        &self,
        id: &str,
        allowed: Option<&[String]>,
        now: Timestamp,
    ) -> Result<GroupsRead<'_>, KickOffError> {
        if !fhir::is_id(id) || allowed.is_some_and(|groups| !groups.iter().any(|group| group == id)) {
            return Err(KickOffError::UnknownGroup { id: id.to_owned() });
        }
        let group = self.worker.reading.read(&self.worker.store, id, Seq::LATEST, now).await?;
        match group.exclusion {
            Some(Exclusion::DescriptiveGroup) => Err(KickOffError::BadGroup(format!(
                "Group/{id} describes possible members (actual is false) and has none that could be exported; export a Group that lists its members"
            ))),
            _ => Ok(group),
        }
    }

    /// Checks that the Patients of the request exist and are members of the Group. Under `handling=lenient`,
    /// other Patients are omitted.
    async fn check_patients(
        &self,
        request: &KickOff,
        parameters: &mut ExportParameters,
        group: Option<GroupsRead<'_>>,
    ) -> Result<(), KickOffError> {
        let Some(references) = parameters.patients.take() else { return Ok(()) };
        let members = group.map(|group| group.into_members().members);
        let store = &self.worker.store;
        let (mut accessible, mut strangers) = (Vec::new(), Vec::new());
        for id in references {
            let is_known = match &members {
                Some(members) => members.position(&id).is_some(),
                None => {
                    let stored_patient = store.read(&ResourceKey::new("Patient", &*id), Seq::LATEST).await?;
                    stored_patient.is_some_and(|patient| !patient.is_deleted())
                }
            };
            if is_known { accessible.push(id) } else { strangers.push(format!("Patient/{id}")) }
        }
        let reason = if members.is_some() { "not in the Group" } else { "not found" };
        if request.lenient {
            let note = |patient: &String| format!("patient: {patient} is {reason}; it was left out");
            parameters.notes.extend(strangers.iter().map(note));
        } else if !strangers.is_empty() {
            strangers.truncate(10);
            return Err(KickOffError::UnknownPatients { reason, patients: strangers });
        }
        parameters.patients = Some(accessible);
        Ok(())
    }
}
