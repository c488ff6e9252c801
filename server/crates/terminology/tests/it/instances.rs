//! Operations on the instances of a code system with several stored versions, which conformance rows cannot
//! set up.

use trefoil_terminology::OperationLevel;

use crate::support::{garden, subsumes, validate_in_system};

#[test]
fn an_instance_answers_for_its_own_version() {
    let garden = garden();
    for (id, query, expected) in [
        ("plants-0", "codeA=fern&codeB=tree", "not-subsumed"),
        ("plants", "codeA=fern&codeB=tree", "UnknownCode(code-invalid): Unknown code 'fern'"),
        ("plants", "codeA=tree&codeB=apple&version=0.9.0", "UnknownCodeSystem(not-found)"),
    ] {
        let response = subsumes(&garden, OperationLevel::Instance(id), query);
        assert!(response.starts_with(expected), "{id} {query}\n{response}");
    }
    for (id, expected) in [("plants-0", "true [Fern]"), ("plants", "false [Unknown code 'fern'")] {
        let response = validate_in_system(&garden, OperationLevel::Instance(id), "code=fern");
        assert!(response.starts_with(expected), "{id}\n{response}");
    }
}
