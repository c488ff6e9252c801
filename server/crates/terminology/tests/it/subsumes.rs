//! `CodeSystem/$subsumes` of an instance that is not the newest version. `conformance/specs/subsumes.toml` has the other
//! requests.

use trefoil_terminology::OperationLevel;

use crate::support::{garden, subsumes};

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
}
