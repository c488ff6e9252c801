// openid-client, as apps use it: discovery, code with PKCE, refresh, pushed requests, DPoP, a back end with a
// key, introspection, revocation and sign-out. The browser in between is a cookie jar and `fetch`.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import * as client from "openid-client";

const folder = process.argv[2];
const endpoint = JSON.parse(readFileSync(`${folder}/endpoint.json`));
const demo = JSON.parse(readFileSync(`${folder}/demo.json`));
const server = new URL(endpoint.base_url);

// A browser that follows redirects on our own pages, signs in and allows.
const jar = new Map();
async function browse(url, init = {}) {
  const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join("; ");
  const answer = await fetch(url, { redirect: "manual", ...init, headers: { cookie, ...init.headers } });
  for (const set of answer.headers.getSetCookie()) {
    const [name, value] = set.split(";")[0].split("=");
    if (value) jar.set(name, value);
    else jar.delete(name);
  }
  return answer;
}
const unescape = (text) => text.replace(/&quot;/g, '"').replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
async function submit(at, page, more) {
  const form = page.match(/<form method="post" action="([^"]*)".*?<\/form>/s);
  const hidden = [...form[0].matchAll(/type="hidden" name="(\w+)" value="([^"]*)"/g)].map((m) => [m[1], unescape(m[2])]);
  return browse(new URL(form[1], at), { method: "POST", body: new URLSearchParams([...hidden, ...more]) });
}
async function answerOf(url) {
  let at = url;
  let answer = await browse(at);
  for (let hops = 0; hops < 12; hops += 1) {
    if (answer.status === 200) {
      const { username, password } = demo.user;
      const more = at.pathname === "/sign-in" ? [["username", username], ["password", password]] : [["answer", "allow"]];
      answer = await submit(at, await answer.text(), more);
    } else {
      at = new URL(answer.headers.get("location"), at);
      if (at.origin !== server.origin) return at;
      answer = await browse(at);
    }
  }
  throw new Error(`still at ${at}`);
}
const discover = (of, authentication) =>
  client.discovery(server, of.client_id, { client_secret: of.client_secret }, authentication);

async function codeFlow(of, config, scope, build, options) {
  const pkceCodeVerifier = client.randomPKCECodeVerifier();
  const [state, nonce] = [client.randomState(), client.randomNonce()];
  const url = await build(config, {
    redirect_uri: of.redirect_uris[0], scope, state, nonce,
    code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier), code_challenge_method: "S256",
  }, options);
  const back = await answerOf(url);
  const checks = { pkceCodeVerifier, expectedState: state, expectedNonce: nonce };
  return client.authorizationCodeGrant(config, back, checks, undefined, options);
}

// A confidential client: code, userinfo, refresh, introspection, revocation.
{
  const of = demo.confidential;
  const config = await discover(of, client.ClientSecretBasic(of.client_secret));
  const tokens = await codeFlow(of, config, "openid profile offline_access", client.buildAuthorizationUrl);
  assert.equal(tokens.token_type, "bearer");
  const { sub } = tokens.claims();
  const claims = await client.fetchUserInfo(config, tokens.access_token, sub);
  assert.equal(claims.name, demo.user.claims.name);
  const fresh = await client.refreshTokenGrant(config, tokens.refresh_token);
  assert.notEqual(fresh.refresh_token, tokens.refresh_token);
  assert.equal((await client.tokenIntrospection(config, fresh.access_token)).active, true);
  await client.tokenRevocation(config, fresh.refresh_token);
  assert.equal((await client.tokenIntrospection(config, fresh.access_token)).active, false);
}
// A client that pushes its requests, by a secret in the form.
{
  const of = demo.pushed;
  const config = await discover(of, client.ClientSecretPost(of.client_secret));
  const tokens = await codeFlow(of, config, "openid email", client.buildAuthorizationUrlWithPAR);
  assert.equal(tokens.claims().sub, demo.user.claims.sub);
}
// A public client whose tokens are bound to a key: pushed with a proof, used and refreshed with one.
{
  const of = demo.bound;
  const config = await discover(of, client.None());
  const DPoP = client.getDPoPHandle(config, await client.randomDPoPKeyPair("ES256"));
  const tokens = await codeFlow(of, config, "openid offline_access", client.buildAuthorizationUrlWithPAR, { DPoP });
  assert.equal(tokens.token_type, "dpop");
  const { sub } = tokens.claims();
  assert.equal((await client.fetchUserInfo(config, tokens.access_token, sub, { DPoP })).sub, sub);
  await assert.rejects(client.fetchUserInfo(config, tokens.access_token, sub));
  const fresh = await client.refreshTokenGrant(config, tokens.refresh_token, undefined, { DPoP });
  assert.equal((await client.fetchUserInfo(config, fresh.access_token, sub, { DPoP })).sub, sub);
}
// A client that the user is asked about.
{
  const of = demo.third_party;
  const config = await discover(of, client.None());
  const tokens = await codeFlow(of, config, "openid profile", client.buildAuthorizationUrl);
  assert.equal(tokens.scope, "openid profile");
}
// A back end with a key.
for (const of of demo.backend) {
  const algorithm = of.alg === "ES384" ? { name: "ECDSA", namedCurve: "P-384" } : { name: "RSASSA-PKCS1-v1_5", hash: "SHA-384" };
  const key = await crypto.subtle.importKey("jwk", of.jwk, algorithm, false, ["sign"]);
  const config = await discover(of, client.PrivateKeyJwt({ key, kid: of.jwk.kid }));
  const tokens = await client.clientCredentialsGrant(config, { scope: "system/*.rs" });
  assert.equal(tokens.expires_in, 300);
  const patients = new URL(`${endpoint.fhir_base}/Patient/pat-01`);
  assert.equal((await client.fetchProtectedResource(config, tokens.access_token, patients, "GET")).status, 200);
}
// Sign-out by the app.
{
  const of = demo.public;
  const config = await discover(of, client.None());
  const tokens = await codeFlow(of, config, "openid", client.buildAuthorizationUrl);
  const url = client.buildEndSessionUrl(config, {
    id_token_hint: tokens.id_token, post_logout_redirect_uri: of.redirect_uris[0], state: "bye",
  });
  const gone = await browse(url);
  assert.equal(new URL(gone.headers.get("location")).searchParams.get("state"), "bye");
  await assert.rejects(client.fetchUserInfo(config, tokens.access_token, tokens.claims().sub));
}
console.log("all good");
