// fhir-kit-client creates, finds, changes and deletes resources, sends a batch, and reads the capabilities. Arguments: the FHIR
// base URL, and an access token.

import assert from "node:assert/strict";
import { Client } from "fhir-kit-client";

const [baseUrl, token] = process.argv.slice(2);
const client = new Client({ baseUrl });
client.bearerToken = token;

const smart = await client.smartAuthMetadata();
assert.ok(smart.tokenUrl, "the SMART configuration names the token endpoint");
const metadata = await client.capabilityStatement();
assert.equal(metadata.fhirVersion, "4.0.1");

const patient = await client.create({ resourceType: "Patient", body: { resourceType: "Patient", name: [{ family: "Kit" }] } });
const found = await client.search({ resourceType: "Patient", searchParams: { family: "Kit" } });
assert.deepEqual(found.entry.map((entry) => entry.resource.id), [patient.id]);
const changed = await client.update({ resourceType: "Patient", id: patient.id, body: { ...patient, active: true } });
assert.equal(changed.meta.versionId, "2");
const first = await client.vread({ resourceType: "Patient", id: patient.id, version: "1" });
assert.equal(first.active, undefined);
const history = await client.history({ resourceType: "Patient", id: patient.id });
assert.equal(history.entry.length, 2);
const answer = await client.batch({
  body: {
    resourceType: "Bundle",
    type: "batch",
    entry: [{ request: { method: "GET", url: `Patient/${patient.id}` } }],
  },
});
assert.equal(answer.entry[0].resource.id, patient.id);
await client.delete({ resourceType: "Patient", id: patient.id });
await assert.rejects(client.read({ resourceType: "Patient", id: patient.id }), (error) => error.response.status === 410);
console.log("all good");
