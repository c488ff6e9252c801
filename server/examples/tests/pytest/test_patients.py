"""Run it with `pytest -n 4`: each worker has a server of its own."""

import pytest
from trefoil_server import Trefoil


@pytest.mark.parametrize("family", ["Marshall", "Quillfeather", "Thistlewood", "Underbough"])
def test_a_stored_patient_is_found_by_the_name(trefoil: Trefoil, family: str) -> None:
    trefoil.put({"resourceType": "Patient", "id": family.lower(), "name": [{"family": family}]})
    assert trefoil.get(f"Patient?family={family}")["total"] == 1


def test_a_reset_server_has_only_the_demo_project(empty_trefoil: Trefoil) -> None:
    assert empty_trefoil.get("Patient?family=Quillfeather")["total"] == 0
    assert empty_trefoil.get("Patient/pat-01")["id"] == "pat-01"
