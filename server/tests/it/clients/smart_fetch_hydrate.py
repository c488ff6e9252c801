"""smart-fetch exports the documents of a Group and puts the notes that they refer to into them. Arguments: the data folder of
the server, and the folder of the export."""

import base64
import gzip
import json
import os
import pathlib
import subprocess
import sys

data, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
demo = json.loads((data / "demo.json").read_text())
endpoint = json.loads((data / "endpoint.json").read_text())
client = demo["backend"][0]
keys = data / "keys.jwks"
keys.write_text(json.dumps({"keys": [{**client["jwk"], "alg": client["alg"], "key_ops": ["sign"]}]}))
server = ["--fhir-url", endpoint["fhir_base"], "--smart-client-id", client["client_id"], "--smart-key", str(keys)]
export = ["export", *server, "--export-mode", "bulk", "--hydration-tasks", "none", "--no-default-filters"]
export += ["--type", "DocumentReference", "--group", demo["groups"][0], "--nickname", "notes", str(out)]
program = "import sys; from smart_fetch.cli.main import main_cli; sys.exit(main_cli())"


def run(arguments):
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "SSL_CERT_FILE": endpoint["ca"]},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


run(export)
folder = next(path for path in sorted(out.iterdir()) if path.is_dir() and path.name.endswith("notes"))
printed = run(["hydrate", str(folder), "--tasks", "inline", *server])
notes = {}
for path in folder.glob("DocumentReference.*.ndjson.gz"):
    with gzip.open(path, "rt") as file:
        for document in map(json.loads, file):
            for content in document["content"]:
                attachment = content["attachment"]
                assert "data" in attachment, (attachment, printed)
                notes[document["id"]] = base64.b64decode(attachment["data"]).decode()
print(json.dumps(notes))
