//! A stored version, prepared for another store (see [`store::transfer`]).

use store::{ReplayedVersion, Version};

use crate::ResourceBodyError;
use crate::search::index::referrers;
use crate::write::assignment::{patients_first, patients_of};
use crate::write::prepare::ResourceRules;
use crate::write::scan;

/// The version with what its body determines besides its compartments: the terms of the search index, and the
/// compartment with whose resources it is stored.
///
/// # Errors
/// Returns the first defect of a body that is not a resource.
pub fn replayed(version: Version) -> Result<ReplayedVersion, ResourceBodyError> {
    let mut compartments: Vec<&String> = version.compartments.iter().collect();
    patients_first(&mut compartments);
    let home = compartments.first().map(|&first| first.clone());
    let terms = match &version.body {
        Some(body) => {
            let depth = ResourceRules::default().depth;
            let kind = &version.key.kind;
            let mut terms = scan::scan(body, Some(kind), depth, None)?.terms.finish();
            terms.extend(referrers::terms(kind, body, patients_of(&version.compartments)));
            terms
        }
        None => Vec::new(),
    };
    Ok(ReplayedVersion { version, home, terms })
}
