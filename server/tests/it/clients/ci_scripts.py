"""Prints the commands of a workflow of GitHub or GitLab that test something, without those that install. Argument: the file."""

import sys

from ruamel.yaml import YAML

with open(sys.argv[1]) as file:
    workflow = YAML(typ="safe").load(file)
for job in workflow.get("jobs", {}).values():
    for step in job["steps"]:
        if "run" in step and not step["name"].startswith("Install"):
            print(step["run"])
for job in workflow.values():
    if isinstance(job, dict):
        for line in job.get("script", []):
            print(line)
