"""Fixtures of pytest. With pytest-xdist, each worker has a server of its own."""

import typing

import pytest

if typing.TYPE_CHECKING:
    from trefoil_server import Trefoil


@pytest.fixture(scope="session")
def trefoil() -> "typing.Iterator[Trefoil]":
    """A server for all tests of this process."""
    from trefoil_server import Trefoil

    with Trefoil() as server:
        yield server


@pytest.fixture
def empty_trefoil(trefoil: "Trefoil") -> "Trefoil":
    """The server, which has forgotten everything that earlier tests stored."""
    trefoil.reset()
    return trefoil
