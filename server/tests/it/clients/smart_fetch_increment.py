"""smart-fetch on two days: a full export of a Group, and then only what has changed. Arguments: the data folder of the server,
the folder of the exports, and `first` or `second`."""

import gzip
import json
import os
import pathlib
import subprocess
import sys

data, out, day = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
demo = json.loads((data / "demo.json").read_text())
endpoint = json.loads((data / "endpoint.json").read_text())
client = demo["backend"][0]
keys = data / "keys.jwks"
keys.write_text(json.dumps({"keys": [{**client["jwk"], "alg": client["alg"], "key_ops": ["sign"]}]}))
arguments = ["export", "--fhir-url", endpoint["fhir_base"], "--smart-client-id", client["client_id"]]
arguments += ["--smart-key", str(keys), "--export-mode", "bulk", "--hydration-tasks", "none", "--no-default-filters"]
arguments += ["--type", "Patient,Observation", "--group", demo["groups"][0], "--nickname", day]
arguments += ["--since", "auto"] if day == "second" else []
program = "import sys; from smart_fetch.cli.main import main_cli; sys.exit(main_cli())"
run = subprocess.run(
    [sys.executable, "-c", program, *arguments, str(out)],
    env={**os.environ, "SSL_CERT_FILE": endpoint["ca"]},
    capture_output=True,
    text=True,
    timeout=120,
)
assert run.returncode == 0, run.stdout + run.stderr


def resources(folder):
    for path in sorted(folder.glob("**/*.ndjson.gz")):
        if path.parent.name == "deleted":
            continue
        with gzip.open(path, "rt") as file:
            for line in file:
                resource = json.loads(line)
                if resource["resourceType"] in ("Patient", "Observation"):
                    yield f"{resource['resourceType']}/{resource['id']}"


folder = next(path for path in sorted(out.iterdir()) if path.is_dir() and path.name.endswith(day))
found = sorted(set(resources(folder)))
deleted = sorted(
    entry["request"]["url"]
    for path in folder.glob("**/deleted/*.ndjson.gz")
    for line in gzip.open(path, "rt")
    for entry in json.loads(line)["entry"]
)
print(json.dumps({"found": found, "deleted": deleted, "output": run.stdout}))
