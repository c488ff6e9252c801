"""DuckDB keeps a copy of an export with the lines of the documentation. Arguments: the page, and the folder with the folders
`full` and `day-2`. Prints the references in the copy with their languages."""

import json
import os
import sys

import duckdb

page, folder = sys.argv[1:]
with open(page) as file:
    statements = file.read().split("```sql\n")[1].split("```")[0]
os.chdir(folder)
database = duckdb.connect()
database.execute(statements)
rows = database.execute("SELECT reference, resource->>'$.language' FROM copy ORDER BY reference").fetchall()
print(json.dumps(rows))
