//! `trefoil store accept-restored`: the database that went back in time is used from now on.

use anyhow::{Result, bail};
use store::{Store, StoreError};

use super::events::{CommandEvent, EventSink};
use super::services::AdminServices;
use crate::clock::{Clock, until_next_second};
use crate::records::audit::AuditEntry;

/// The changes that a restored store cannot know. The audit logs of the nodes tell what was done.
const REPEAT: [&str; 5] = [
    "users who were disabled or deleted, and passwords and rights that were changed",
    "clients that were disabled or deleted, and secrets and keys that were rotated",
    "signing keys that were revoked",
    "consents that were withdrawn",
    "records that were erased (trefoil purge)",
];

/// Ends what was issued before, and records in the database that all nodes use it.
///
/// # Errors
/// An error if the store is not a database, or the database cannot be written.
pub async fn accept_restored(services: &AdminServices<'_>, events: EventSink<'_>) -> Result<()> {
    // The store of a running node refuses the database.
    let open_store = services.resources.store();
    let Some(store) = open_store.unannounced().await? else {
        bail!(
            "the store of {} is not a database that several nodes share: `trefoil restore` is all that it needs",
            services.data.display()
        );
    };
    let refusal = open_store.refusal();
    let moment = store.last_time().await?.unwrap_or_default();
    bulk::record_restore(&store, moment, services.clock.now()).await?;
    end_sessions(store.clone(), services.clock).await?;
    // Last, so that no node uses the database before.
    store.accept(&services.data.join("node.json")).await?;
    services.audit.add(&AuditEntry::StoreAccepted { moment });
    if let Some(refusal) = refusal {
        events(CommandEvent::Line(format!("refused until now: {refusal}")));
    }
    let moment = fhir::instant::format(moment);
    events(CommandEvent::Line(format!(
        "accepted: the database with the writes up to {moment}; sessions, codes and tokens of before have ended, and all nodes \
         start their services again"
    )));
    events(CommandEvent::Line(format!("The store cannot know what was done after {moment}. Repeat:")));
    for line in REPEAT {
        events(CommandEvent::Line(format!("- {line}")));
    }
    Ok(())
}

/// Ends all sessions, codes and tokens that were issued before now.
///
/// # Errors
/// Returns [`StoreError`] if the store cannot be written.
pub async fn end_sessions(store: Store, clock: &Clock) -> Result<(), StoreError> {
    let now = clock.now();
    identity::end_all_before(store, now).await?;
    // Access tokens of this second are refused, and the next server must be able to issue some.
    until_next_second(now).await;
    Ok(())
}
