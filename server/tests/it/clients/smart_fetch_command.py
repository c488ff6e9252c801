"""Runs smart-fetch against the demo of a server, as a client that signs with a key of the demo."""

import json
import os
import subprocess
import sys

PROGRAM = "import sys; from smart_fetch.cli.main import main_cli; sys.exit(main_cli())"


def smart_fetch(data, client, command, *arguments):
    """Runs a command and returns what it prints. `data` is the data folder of the server."""
    endpoint = json.loads((data / "endpoint.json").read_text())
    keys = data / f"{client['alg']}.jwks"
    keys.write_text(json.dumps({"keys": [{**client["jwk"], "alg": client["alg"], "key_ops": ["sign"]}]}))
    server = ["--fhir-url", endpoint["fhir_base"], "--smart-client-id", client["client_id"], "--smart-key", str(keys)]
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, command, *server, *map(str, arguments)],
        env={**os.environ, "SSL_CERT_FILE": endpoint["ca"]},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout
