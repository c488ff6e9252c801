"""smart-fetch as its users run it: bulk exports of a Group and of everything, with both signing algorithms."""

import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

data = pathlib.Path(sys.argv[1])
demo = json.loads((data / "demo.json").read_text())
endpoint = json.loads((data / "endpoint.json").read_text())
group = demo["groups"][0]


def lines(folder, kind):
    for path in sorted(folder.glob(f"{kind}.*.ndjson.gz")):
        with gzip.open(path, "rt") as file:
            yield from map(json.loads, file)


def fetch(client, level):
    folder = pathlib.Path(tempfile.mkdtemp())
    keys = folder / "keys.jwks"
    keys.write_text(json.dumps({"keys": [{**client["jwk"], "alg": client["alg"], "key_ops": ["sign"]}]}))
    out = folder / "out"
    arguments = ["bulk", "--fhir-url", endpoint["fhir_base"], "--smart-client-id", client["client_id"]]
    arguments += ["--smart-key", str(keys), "--no-default-filters", *level, str(out)]
    program = "import sys; from smart_fetch.cli.main import main_cli; sys.exit(main_cli())"
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "SSL_CERT_FILE": endpoint["ca"]},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return out


for client in demo["backend"]:
    out = fetch(client, ["--group", group])
    patients = {patient["id"] for patient in lines(out, "Patient")}
    assert len(patients) >= 2, patients
    observations = list(lines(out, "Observation"))
    assert observations, "the members have observations"
    for observation in observations:
        assert observation["subject"]["reference"].removeprefix("Patient/") in patients, observation
    everybody = {patient["id"] for patient in lines(fetch(client, []), "Patient")}
    assert patients < everybody, (patients, everybody)
    log = [json.loads(line) for line in (out / "log.ndjson").read_text().splitlines()]
    assert any(event["eventId"] == "status_complete" for event in log), log

print("all good")
