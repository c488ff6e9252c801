"""smart-fetch as its users run it: bulk exports of a Group and of everything, with both signing algorithms."""

import gzip
import json
import pathlib
import sys
import tempfile

from smart_fetch_command import smart_fetch

data = pathlib.Path(sys.argv[1])
demo = json.loads((data / "demo.json").read_text())
group = demo["groups"][0]


def lines(folder, kind):
    for path in sorted(folder.glob(f"{kind}.*.ndjson.gz")):
        with gzip.open(path, "rt") as file:
            yield from map(json.loads, file)


def fetch(client, level):
    out = pathlib.Path(tempfile.mkdtemp()) / "out"
    smart_fetch(data, client, "bulk", "--no-default-filters", *level, out)
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
