"""smart-fetch on two days: a full export of a Group, and then only what has changed. Arguments: the data folder of the server,
the folder of the exports, and `first` or `second`."""

import gzip
import json
import pathlib
import sys

from smart_fetch_command import smart_fetch

data, out, day = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
demo = json.loads((data / "demo.json").read_text())
export = ["--export-mode", "bulk", "--hydration-tasks", "none", "--no-default-filters", "--type", "Patient,Observation"]
export += ["--since", "auto"] if day == "second" else []
printed = smart_fetch(
    data, demo["backend"][0], "export", *export, "--group", demo["groups"][0], "--nickname", day, out
)


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
print(json.dumps({"found": found, "deleted": deleted, "output": printed}))
