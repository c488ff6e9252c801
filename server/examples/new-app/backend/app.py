"""A back end without users: gets a token with its private key (SMART Backend Services) and counts the patients."""

import json
import time

import requests
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from joserfc import jwk

app = json.load(open("app.json"))
key = json.load(open("private.jwk"))
server = requests.get(app["issuer"] + "/.well-known/openid-configuration").json()
token_endpoint = server["token_endpoint"]

session = OAuth2Session(
    app["client_id"], jwk.import_key(key), token_endpoint_auth_method="private_key_jwt", scope=app["scope"]
)
# SMART allows five minutes for the assertion; Authlib would take an hour.
session.register_client_auth_method(
    PrivateKeyJWT(
        token_endpoint,
        alg=key["alg"],
        headers={"kid": key["kid"], "typ": "JWT"},
        claims={"exp": int(time.time()) + 300},
    )
)
token = session.fetch_token(token_endpoint, grant_type="client_credentials")
print(f"token for {token['scope']}, valid for {token['expires_in']} s")

answer = session.get(app["fhir_base"] + "/Patient", params={"_summary": "count"})
answer.raise_for_status()
print(f"patients on the server: {answer.json()['total']}")
