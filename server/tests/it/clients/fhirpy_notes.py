"""fhirpy creates, finds, changes and deletes resources. Arguments: the FHIR base URL, and an access token."""

import asyncio
import sys

from fhirpy import AsyncFHIRClient
from fhirpy.base.exceptions import ResourceNotFound

base, token = sys.argv[1:]


async def run():
    client = AsyncFHIRClient(base, authorization=f"Bearer {token}")
    patient = client.resource("Patient", name=[{"family": "Journey"}], gender="female", active=True)
    await patient.save()
    found = await client.resources("Patient").search(family="Journey", gender="female").fetch_all()
    assert [one.id for one in found] == [patient.id], found
    patient["active"] = False
    await patient.save()
    again = await client.reference("Patient", patient.id).to_resource()
    assert again["active"] is False and again["meta"]["versionId"] == "2", again
    observations = client.resources("Observation")
    for value in range(3):
        observation = client.resource(
            "Observation", status="final", code={"text": str(value)}, subject=patient.to_reference()
        )
        await observation.save()
    assert await observations.search(subject=patient.to_reference()).count() == 3
    included = await observations.search(subject=patient.id).include("Observation", "subject").fetch()
    assert len(included) == 3, included
    for observation in included:
        await observation.delete()
    await patient.delete()
    try:
        await client.resources("Patient").search(_id=patient.id).get()
    except ResourceNotFound:
        print("all good")


asyncio.run(run())
