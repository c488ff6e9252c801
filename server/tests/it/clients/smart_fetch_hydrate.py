"""smart-fetch exports the documents of a Group and puts the notes that they refer to into them. Arguments: the data folder of
the server, and the folder of the export."""

import base64
import gzip
import json
import pathlib
import sys

from smart_fetch_command import smart_fetch

data, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
demo = json.loads((data / "demo.json").read_text())
client = demo["backend"][0]
export = ["--export-mode", "bulk", "--hydration-tasks", "none", "--no-default-filters", "--type", "DocumentReference"]
smart_fetch(data, client, "export", *export, "--group", demo["groups"][0], "--nickname", "notes", out)
folder = next(path for path in sorted(out.iterdir()) if path.is_dir() and path.name.endswith("notes"))
printed = smart_fetch(data, client, "hydrate", "--tasks", "inline", folder)
notes = {}
for path in folder.glob("DocumentReference.*.ndjson.gz"):
    with gzip.open(path, "rt") as file:
        for document in map(json.loads, file):
            for content in document["content"]:
                attachment = content["attachment"]
                assert "data" in attachment, (attachment, printed)
                notes[document["id"]] = base64.b64decode(attachment["data"]).decode()
print(json.dumps(notes))
