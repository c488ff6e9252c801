"""An app keeps a copy of the Observations with fhirpy over two days. Arguments: the FHIR base URL, and a token."""

import asyncio
import sys

from fhirpy import AsyncFHIRClient

base, token = sys.argv[1:]
copy = {}


async def changes(client, since):
    """Takes what has changed since the last resource of the copy, in the order of the changes."""
    search = client.resources("Observation").sort("_lastUpdated").limit(2)
    if since:
        search = search.search(_lastUpdated__gt=since)
        history = await client.execute("Observation/_history", method="get", params={"_since": since})
        for entry in history.get("entry", []):
            if entry["request"]["method"] == "DELETE":
                copy.pop(entry["request"]["url"].split("/")[1], None)
    found = await search.fetch_all()
    times = [one["meta"]["lastUpdated"] for one in found]
    assert times == sorted(times), times
    copy.update({one.id: one["meta"]["versionId"] for one in found})
    return (times[-1] if times else since), len(found)


async def check(client):
    """Compares the copy with all that the server has."""
    everything = await client.resources("Observation").fetch_all()
    expected = {one.id: one["meta"]["versionId"] for one in everything}
    assert copy == expected, (copy, expected)


async def run():
    client = AsyncFHIRClient(base, authorization=f"Bearer {token}")
    observation = lambda number: client.resource("Observation", status="final", code={"text": f"{number}"})
    since, before = await changes(client, None)
    await check(client)
    own = [observation(number) for number in range(5)]
    for one in own:
        await one.save()
    since, count = await changes(client, since)
    assert count == 5, count
    await check(client)
    # The next day: a change, a deletion, and something new.
    own[3]["status"] = "amended"
    await own[3].save()
    await own[1].delete()
    await observation("new").save()
    since, count = await changes(client, since)
    assert count == 2, count
    await check(client)
    since, count = await changes(client, since)
    assert count == 0, count
    assert len(copy) == before + 5
    print("all good")


asyncio.run(run())
