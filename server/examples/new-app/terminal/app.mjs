// A program in a terminal: opens the browser for the sign-in, and gets the answer at an address of this machine.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import * as client from "openid-client";

const app = JSON.parse(readFileSync("app.json"));
const server = await client.discovery(new URL(app.issuer), app.client_id, undefined, client.None());

// Any free port: native apps may use each (RFC 8252 section 7.3).
const listener = http.createServer().listen(0, "127.0.0.1");
await once(listener, "listening");
const redirectUri = `http://127.0.0.1:${listener.address().port}/callback`;
const [verifier, state] = [client.randomPKCECodeVerifier(), client.randomState()];
const address = client.buildAuthorizationUrl(server, {
  redirect_uri: redirectUri,
  scope: app.scope,
  state,
  code_challenge: await client.calculatePKCECodeChallenge(verifier),
  code_challenge_method: "S256",
});
console.log(`sign in at ${address}`);
const opener = { darwin: "open", win32: "explorer" }[process.platform] ?? "xdg-open";
spawn(process.env.BROWSER || opener, [address.href], { stdio: "ignore" }).on("error", () => {});

const [request, answer] = await once(listener, "request");
answer.end("Signed in. You can close this page.");
listener.close();
const checks = { pkceCodeVerifier: verifier, expectedState: state };
const tokens = await client.authorizationCodeGrant(server, new URL(request.url, redirectUri), checks);
const person = await client.fetchUserInfo(server, tokens.access_token, tokens.claims().sub);
console.log(`Signed in as ${person.name ?? person.sub}`);
process.exit();
