//! The latest Provenance of a resource (`includeAssociatedData=LatestProvenanceResources`).

use serde::Deserialize;
use store::{ScanOptions, Seq, Store, StoreError, Versions as _};

/// The id of the Provenance of a resource, such as `Observation/o`, with the latest `recorded` time.
pub(crate) async fn latest_provenance(
    store: &Store,
    target: &str,
    seq: Seq,
) -> Result<Option<String>, StoreError> {
    let (mut latest, mut after) = (None, None::<String>);
    loop {
        let scan = ScanOptions::at(seq).after(after.as_deref());
        let page = store.scan_compartment(target, "Provenance", scan).await?;
        for version in page.versions {
            let recorded = version.body.as_deref().and_then(recorded);
            latest = latest.max(Some((recorded, version.updated, version.key.id)));
        }
        after = page.next;
        if after.is_none() {
            return Ok(latest.map(|(_, _, id)| id));
        }
    }
}

/// The time in `recorded` of a Provenance.
fn recorded(provenance: &[u8]) -> Option<jiff::Timestamp> {
    #[derive(Deserialize)]
    struct Recorded<'a> {
        #[serde(borrow)]
        recorded: resources::json::Text<'a>,
    }
    fhir::instant::parse(&serde_json::from_slice::<Recorded<'_>>(provenance).ok()?.recorded).ok()
}
