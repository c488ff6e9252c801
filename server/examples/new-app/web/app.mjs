// A web app whose server keeps a secret: people sign in, and the page shows who they are. Sessions are in memory.
import { readFileSync } from "node:fs";
import http from "node:http";
import { randomUUID } from "node:crypto";
import * as client from "openid-client";

const app = JSON.parse(readFileSync("app.json"));
const authentication = client.ClientSecretBasic(app.client_secret);
const server = await client.discovery(new URL(app.issuer), app.client_id, undefined, authentication);
const waiting = new Map(); // What a sign-in needs at its end, by the cookie of the browser.

async function begin(_, answer) {
  const [verifier, state, cookie] = [client.randomPKCECodeVerifier(), client.randomState(), randomUUID()];
  waiting.set(cookie, { verifier, state });
  const address = client.buildAuthorizationUrl(server, {
    redirect_uri: app.redirect_uri,
    scope: app.scope,
    state,
    code_challenge: await client.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
  });
  const headers = { location: address.href, "set-cookie": `app=${cookie}; HttpOnly; SameSite=Lax; Path=/` };
  answer.writeHead(302, headers).end();
}

async function callback(request, answer) {
  const cookie = /app=([\w-]+)/.exec(request.headers.cookie ?? "")?.[1];
  const { verifier, state } = waiting.get(cookie) ?? {};
  waiting.delete(cookie);
  if (!state) return answer.writeHead(400).end("This sign-in was not started here. Open / to begin.");
  const address = new URL(request.url, app.redirect_uri);
  const checks = { pkceCodeVerifier: verifier, expectedState: state };
  const tokens = await client.authorizationCodeGrant(server, address, checks);
  const person = await client.fetchUserInfo(server, tokens.access_token, tokens.claims().sub);
  answer.setHeader("content-type", "text/plain; charset=utf-8");
  answer.end(`Signed in as ${person.name ?? person.sub}`);
}

const { port } = new URL(app.redirect_uri);
http
  .createServer((request, answer) => {
    const page = { "/": begin, "/callback": callback }[request.url.split("?")[0]];
    if (!page) return answer.writeHead(404).end();
    page(request, answer).catch((error) => answer.writeHead(500).end(String(error)));
  })
  .listen(port, "127.0.0.1", () => console.log(`open http://localhost:${port}/`));
