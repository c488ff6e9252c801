// Three apps keep copies of the Observations over two days: with fhirclient, with fhir-kit-client, and with the requests of
// the Android FHIR SDK. Arguments: the FHIR base URL, and an access token.

import assert from "node:assert/strict";
import { Client } from "fhir-kit-client";
import smart from "fhirclient";

const [baseUrl, token] = process.argv.slice(2);
const headers = { authorization: `Bearer ${token}`, accept: "application/fhir+json" };
const kit = new Client({ baseUrl });
kit.bearerToken = token;
const client = new smart.FhirClient(baseUrl);

const query = (since) => ({ _sort: "_lastUpdated", _count: "2", ...(since && { _lastUpdated: `gt${since}` }) });
const get = async (url) => {
  const answer = await fetch(url, { headers });
  const body = await answer.json();
  assert.equal(answer.status, 200, `${url}: ${JSON.stringify(body)}`);
  return body;
};
const next = (bundle) => bundle.link.find((link) => link.relation === "next")?.url;

// The resources that have changed since a time, by each app.
const apps = {
  async fhirclient(since) {
    const found = [];
    const url = `Observation?${new URLSearchParams(query(since))}`;
    for await (const resource of client.resources(url, { headers })) found.push(resource);
    return found;
  },
  async "fhir-kit-client"(since) {
    const found = [];
    let bundle = await kit.search({ resourceType: "Observation", searchParams: query(since) });
    while (bundle) {
      found.push(...(bundle.entry ?? []).map((entry) => entry.resource));
      bundle = await kit.nextPage({ bundle });
    }
    return found;
  },
  async sdk(since) {
    const found = [];
    let url = `${baseUrl}/Observation?${new URLSearchParams(query(since))}`;
    while (url) {
      const bundle = await get(url);
      const page = (bundle.entry ?? []).map((entry) => entry.resource);
      assert.ok(page.length > 0 || found.length === 0, "no page but the first is empty");
      found.push(...page);
      url = next(bundle);
    }
    return found;
  },
};

class Copy {
  versions = new Map();
  since = undefined;

  // Takes the changes of an app; a copy that has begun asks the history for what was deleted.
  async synchronize(changes) {
    if (this.since) {
      const history = await get(`${baseUrl}/Observation/_history?_since=${encodeURIComponent(this.since)}`);
      for (const entry of history.entry ?? []) {
        if (entry.request.method === "DELETE") this.versions.delete(entry.request.url.split("/")[1]);
      }
    }
    const found = await changes(this.since);
    const times = found.map((resource) => resource.meta.lastUpdated);
    assert.deepEqual(times, times.toSorted());
    for (const resource of found) this.versions.set(resource.id, resource.meta.versionId);
    this.since = times.at(-1) ?? this.since;
    return found.length;
  }
}

async function everything() {
  const all = new Map();
  let bundle = await kit.search({ resourceType: "Observation", searchParams: { _count: "500" } });
  for (; bundle; bundle = await kit.nextPage({ bundle })) {
    for (const { resource } of bundle.entry ?? []) all.set(resource.id, resource.meta.versionId);
  }
  return all;
}

const copies = Object.entries(apps).map(([name, changes]) => ({ name, changes, copy: new Copy() }));
async function day(expected) {
  const all = await everything();
  for (const { name, changes, copy } of copies) {
    const count = await copy.synchronize(changes);
    if (expected !== undefined) assert.equal(count, expected, name);
    assert.deepEqual(new Map([...copy.versions].sort()), new Map([...all].sort()), name);
  }
}

const observation = (text) => ({ resourceType: "Observation", status: "final", code: { text } });
const create = (text) => kit.create({ resourceType: "Observation", body: observation(text) });
await day();
const own = [];
for (const text of ["a", "b", "c", "d", "e"]) own.push(await create(text));
await day(5);
await kit.update({ resourceType: "Observation", id: own[3].id, body: { ...own[3], status: "amended" } });
await kit.delete({ resourceType: "Observation", id: own[1].id });
await create("new");
await day(2);
await day(0);
console.log("all good");
