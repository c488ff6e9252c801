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
        let answer = subsumes(&garden, OperationLevel::Instance(id), query);
        assert!(answer.starts_with(expected), "{id} {query}\n{answer}");
    }
    for (id, expected) in [("plants-0", "true [Fern]"), ("plants", "false [Unknown code 'fern'")] {
        let answer = validate_in_system(&garden, OperationLevel::Instance(id), "code=fern");
        assert!(answer.starts_with(expected), "{id}\n{answer}");
    }
}
