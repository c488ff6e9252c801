// A Node client with nothing but the standard library: SMART Backend Services and a Group export.
import { createPrivateKey, randomUUID, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import assert from "node:assert/strict";

const folder = process.argv[2];
const endpoint = JSON.parse(readFileSync(`${folder}/endpoint.json`));
const demo = JSON.parse(readFileSync(`${folder}/demo.json`));

async function token(client, scope) {
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const url = `${endpoint.base_url}/oauth2/token`;
  const now = Math.floor(Date.now() / 1000);
  const head = encode({ alg: client.alg, typ: "JWT", kid: client.jwk.kid });
  const claims = encode({ iss: client.client_id, sub: client.client_id, aud: url, exp: now + 300, jti: randomUUID() });
  const key = createPrivateKey({ key: client.jwk, format: "jwk" });
  const signature = sign("sha384", Buffer.from(`${head}.${claims}`), { key, dsaEncoding: "ieee-p1363" });
  const body = new URLSearchParams({
    grant_type: "client_credentials",
    scope,
    client_assertion_type: "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    client_assertion: `${head}.${claims}.${signature.toString("base64url")}`,
  });
  const answer = await fetch(url, { method: "POST", body });
  assert.equal(answer.status, 200, await answer.clone().text());
  return (await answer.json()).access_token;
}

for (const client of demo.backend) {
  const bearer = { Authorization: `Bearer ${await token(client, "system/*.read")}` };
  const begun = await fetch(`${endpoint.fhir_base}/Group/${demo.groups[0]}/$export?_outputFormat=ndjson`, {
    headers: { ...bearer, Accept: "application/fhir+json", Prefer: "respond-async" },
  });
  assert.equal(begun.status, 202);
  const status = begun.headers.get("content-location");
  let answer;
  do answer = await fetch(status, { headers: bearer });
  while (answer.status === 202);
  assert.equal(answer.status, 200);
  const manifest = await answer.json();
  assert.equal(manifest.requiresAccessToken, true);
  assert.deepEqual(manifest.error, []);
  const patients = new Set();
  for (const file of manifest.output) {
    assert.ok([400, 401].includes((await fetch(file.url)).status));
    const lines = (await (await fetch(file.url, { headers: bearer })).text()).trimEnd().split("\n").map((l) => JSON.parse(l));
    assert.equal(lines.length, file.count);
    assert.ok(lines.every((line) => line.resourceType === file.type));
    if (file.type === "Patient") lines.forEach((line) => patients.add(line.id));
  }
  assert.equal(patients.size, 5);
  assert.equal((await fetch(status, { method: "DELETE", headers: bearer })).status, 202);
  assert.equal((await fetch(status, { headers: bearer })).status, 404);
}
console.log("all good");
