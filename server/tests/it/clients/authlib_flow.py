"""Authlib, as Python services use it: the code flow with PKCE, refresh, and client_credentials with a key."""
import html, json, re, sys, time, urllib.parse

import requests
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from joserfc import jwk, jwt

folder = sys.argv[1]
endpoint = json.load(open(folder + "/endpoint.json"))
demo = json.load(open(folder + "/demo.json"))
base, user = endpoint["base_url"], demo["user"]


def trusting(session):
    session.trust_env = False
    session.verify = endpoint["ca"]
    return session


known = trusting(requests.Session()).get(f"{base}/.well-known/openid-configuration").json()


def answer_of(url):
    """Plays the browser: signs in where a page asks for it."""
    browser = trusting(requests.Session())
    answer = browser.get(url, allow_redirects=False)
    for _ in range(12):
        if answer.status_code == 200:
            fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', answer.text))
            fields = {name: html.unescape(value) for name, value in fields.items()}
            form = {**fields, "username": user["username"], "password": user["password"]}
            answer = browser.post(f"{base}/sign-in", form, allow_redirects=False)
            continue
        to = urllib.parse.urljoin(answer.url, answer.headers["Location"])
        if not to.startswith(base):
            return to
        answer = browser.get(to, allow_redirects=False)
    raise AssertionError(answer.url)


for name, method in [("confidential", "client_secret_basic"), ("confidential", "client_secret_post"), ("public", "none")]:
    client = demo[name]
    session = trusting(OAuth2Session(
        client["client_id"], client.get("client_secret"), token_endpoint_auth_method=method,
        scope="openid profile", redirect_uri=client["redirect_uris"][0], code_challenge_method="S256",
    ))
    verifier = "a-verifier-of-forty-three-characters-or-more-0123"
    url, state = session.create_authorization_url(known["authorization_endpoint"], code_verifier=verifier)
    tokens = session.fetch_token(
        known["token_endpoint"], authorization_response=answer_of(url), state=state, code_verifier=verifier
    )
    keys = jwk.KeySet.import_key_set(trusting(requests.Session()).get(known["jwks_uri"]).json())
    claims = jwt.decode(tokens["id_token"], keys, algorithms=["RS256"]).claims
    jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": base}, aud={"essential": True, "value": client["client_id"]},
        exp={"essential": True},
    ).validate(claims)
    told = session.get(known["userinfo_endpoint"]).json()
    assert told["sub"] == claims["sub"] == user["claims"]["sub"] and told["name"] == user["claims"]["name"], told
    if name == "confidential":
        fresh = session.refresh_token(known["token_endpoint"])
        assert fresh["refresh_token"] != tokens["refresh_token"]
        assert session.get(known["userinfo_endpoint"]).status_code == 200

for client in demo["backend"]:
    session = trusting(OAuth2Session(
        client["client_id"], jwk.import_key(client["jwk"]), token_endpoint_auth_method="private_key_jwt",
        scope="system/*.rs",
    ))
    # Authlib's own default is an hour; SMART wants five minutes at most.
    session.register_client_auth_method(PrivateKeyJWT(
        known["token_endpoint"], headers={"kid": client["jwk"]["kid"], "typ": "JWT"}, alg=client["alg"],
        claims={"exp": int(time.time()) + 300},
    ))
    tokens = session.fetch_token(known["token_endpoint"], grant_type="client_credentials")
    assert tokens["expires_in"] == 300 and tokens["scope"] == "system/*.rs", tokens
    assert session.get(endpoint["fhir_base"] + "/Patient/pat-01").status_code == 200
print("all good")
