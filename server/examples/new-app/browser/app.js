// An app that runs in the browser only: people sign in, and the page shows who they are. It has no secret; PKCE protects the
// code, and the tokens stay in the memory of this page.
import * as oauth from "oauth4webapi";

const app = await (await fetch("/app.json")).json();
const issuer = new URL(app.issuer);
const server = await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer));
const client = { client_id: app.client_id, token_endpoint_auth_method: "none" };
const person = document.getElementById("person");

async function begin() {
  const [verifier, state] = [oauth.generateRandomCodeVerifier(), oauth.generateRandomState()];
  sessionStorage.setItem("sign-in", JSON.stringify({ verifier, state }));
  const address = new URL(server.authorization_endpoint);
  address.search = new URLSearchParams({
    response_type: "code",
    client_id: app.client_id,
    redirect_uri: app.redirect_uri,
    scope: app.scope,
    state,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
  });
  location.assign(address);
}

async function finish() {
  const { verifier, state } = JSON.parse(sessionStorage.getItem("sign-in"));
  const parameters = oauth.validateAuthResponse(server, client, new URL(location.href), state);
  history.replaceState(null, "", "/");
  const answer = await oauth.authorizationCodeGrantRequest(
    server, client, oauth.None(), parameters, app.redirect_uri, verifier,
  );
  const tokens = await oauth.processAuthorizationCodeResponse(server, client, answer);
  const { sub } = oauth.getValidatedIdTokenClaims(tokens);
  const userinfo = await oauth.userInfoRequest(server, client, tokens.access_token);
  const claims = await oauth.processUserInfoResponse(server, client, sub, userinfo);
  person.textContent = `Signed in as ${claims.name ?? claims.sub}`;
}

const button = document.getElementById("sign-in");
button.onclick = begin;
if (new URLSearchParams(location.search).has("state")) {
  await finish();
} else {
  person.textContent = "No user is signed in.";
  button.hidden = false;
}
