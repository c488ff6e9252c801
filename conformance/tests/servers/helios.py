"""The Helios terminology server, whose program `TREFOIL_HTS` names, with the terminology of the demo project. It prints
its address."""

import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

program = os.environ["TREFOIL_HTS"]
folder = Path(tempfile.mkdtemp(prefix="helios-"))
terminology = Path(__file__).parents[3] / "fixtures/data/terminology"
resources = [json.loads(path.read_text()) for path in sorted(terminology.iterdir())]
bundle = {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": each} for each in resources]}
(folder / "bundle.json").write_text(json.dumps(bundle))
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
database = ["--database-url", str(folder / "hts.db")]
subprocess.run([program, "import", folder / "bundle.json", *database], check=True, stdout=subprocess.DEVNULL)

# This process becomes the server, so that it ends with it; its child tells when it is ready.
if os.fork():
    os.dup2(2, 1)
    os.execvp(program, [program, "run", "--port", str(port), *database])
while socket.socket().connect_ex(("127.0.0.1", port)):
    time.sleep(0.1)
print(f"http://127.0.0.1:{port}", flush=True)
