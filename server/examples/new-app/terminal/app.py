"""A program in a terminal: opens the browser for the sign-in, and gets the answer at an address of this machine."""

import json
import secrets
import webbrowser
from http.server import BaseHTTPRequestHandler, HTTPServer

import requests
from authlib.integrations.requests_client import OAuth2Session

app = json.load(open("app.json"))
server = requests.get(app["issuer"] + "/.well-known/openid-configuration").json()
answers = []


class Callback(BaseHTTPRequestHandler):
    def do_GET(self):
        answers.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"Signed in. You can close this page.")

    def log_message(self, *_):
        """The address contains the code, which only this program should see."""


# Any free port: native apps may use each (RFC 8252 section 7.3).
listener = HTTPServer(("127.0.0.1", 0), Callback)
redirect_uri = f"http://127.0.0.1:{listener.server_port}/callback"
session = OAuth2Session(
    app["client_id"], scope=app["scope"], redirect_uri=redirect_uri, code_challenge_method="S256",
    token_endpoint_auth_method="none",
)
verifier = secrets.token_urlsafe(48)
address, state = session.create_authorization_url(server["authorization_endpoint"], code_verifier=verifier)
print(f"sign in at {address}", flush=True)
webbrowser.open(address)
while not answers:
    listener.handle_request()
# Checks the state, and raises an error if the person did not agree.
session.fetch_token(server["token_endpoint"], authorization_response=answers[0], state=state, code_verifier=verifier)
person = session.get(server["userinfo_endpoint"]).json()
print(f"Signed in as {person.get('name', person['sub'])}")
