"""Uses the helper of `packages/python` as the tests of an app do."""

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error

sys.path.insert(0, sys.argv[1])
from trefoil_server import Trefoil

program, rounds = sys.argv[2], int(sys.argv[3])
ready, tokens = [], []
for _ in range(rounds):
    started = time.monotonic()
    with Trefoil(program) as server:
        ready.append(time.monotonic() - started)
        assert server.token()
        tokens.append(time.monotonic() - started)
with Trefoil(program) as server:
    assert server.get("Patient/pat-01")["id"] == "pat-01"
    assert server.put({"resourceType": "Patient", "id": "new", "active": True})["meta"]["versionId"] == "1"
    assert server.put({"resourceType": "Patient"})["id"]
    first, data = server.base_url, server.data
    server.reset()
    assert server.base_url == first and not os.path.exists(data)
    try:
        server.get("Patient/new")
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
    else:
        raise AssertionError("the resource is still there")
    assert server.demo["user"]["password"]


def fails(program, expected):
    """A server that cannot start is an error with its last words."""
    try:
        Trefoil(program)
    except RuntimeError as error:
        assert re.search(expected, str(error)), error
    else:
        raise AssertionError(f"{program} has started")


fails("/bin/false", "ended with 1 before it was ready")
fails("/nowhere/trefoil", "cannot start /nowhere/trefoil: .*install it")
broken = os.path.join(tempfile.mkdtemp(), "trefoil")
with open(broken, "w") as file:
    file.write("#!/bin/sh\necho 'no room' >&2\nexit 3\n")
os.chmod(broken, 0o700)
fails(broken, "ended with 3 before it was ready\nno room")

# The server of a killed process ends, and leaves nothing.
script = "import sys, time; sys.path.insert(0, sys.argv[1]); from trefoil_server import Trefoil\n"
script += "server = Trefoil(sys.argv[2]); print(server.data, flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", script, sys.argv[1], program], stdout=subprocess.PIPE, text=True)
data = child.stdout.readline().strip()
child.kill()
child.wait()
for tries in range(200):
    if not os.path.exists(data):
        break
    time.sleep(0.05)
assert not os.path.exists(data), data
print(f"client ready {sorted(ready)[rounds // 2]:.3f} s, first token {sorted(tokens)[rounds // 2]:.3f} s, all good")
