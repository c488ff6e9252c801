"""The Helios FHIR server, whose program `TREFOIL_HFS` names, with the records of the demo project. It prints its
address."""

import json
import os
import socket
import tempfile
import time
import urllib.request
from pathlib import Path

program = os.environ["TREFOIL_HFS"]
folder = Path(tempfile.mkdtemp(prefix="helios-"))
data = Path(__file__).parents[3] / "fixtures/data"
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
base = f"http://127.0.0.1:{port}"

# This process becomes the server, so that it ends with it; its child loads the records.
if os.fork():
    os.dup2(2, 1)
    os.chdir(folder)
    settings = {"HFS_SERVER_PORT": str(port), "HFS_BASE_URL": base, "HFS_UI_ENABLED": "false"}
    os.execve(program, [program, "--log-level", "warn"], os.environ | settings)
while socket.socket().connect_ex(("127.0.0.1", port)):
    time.sleep(0.1)
for path in [*sorted((data / "patients").iterdir()), data / "groups.ndjson"]:
    for line in path.read_bytes().splitlines():
        record = json.loads(line)
        address = f"{base}/{record['resourceType']}/{record['id']}"
        headers = {"Content-Type": "application/fhir+json"}
        urllib.request.urlopen(urllib.request.Request(address, line, headers, method="PUT")).read()
print(base, flush=True)
