// A back end without users: gets a token with its private key (SMART Backend Services) and counts the patients.
import { readFileSync } from "node:fs";
import * as client from "openid-client";

const app = JSON.parse(readFileSync("app.json"));
const jwk = JSON.parse(readFileSync("private.jwk"));
const key = await crypto.subtle.importKey("jwk", jwk, { name: "ECDSA", namedCurve: jwk.crv }, false, ["sign"]);

const authentication = client.PrivateKeyJwt({ key, kid: jwk.kid });
const server = await client.discovery(new URL(app.issuer), app.client_id, undefined, authentication);
const token = await client.clientCredentialsGrant(server, { scope: app.scope });
console.log(`token for ${token.scope}, valid for ${token.expires_in} s`);

const patients = new URL(`${app.fhir_base}/Patient?_summary=count`);
const answer = await client.fetchProtectedResource(server, token.access_token, patients, "GET");
if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
console.log(`patients on the server: ${(await answer.json()).total}`);
