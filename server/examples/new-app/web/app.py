"""A web app whose server keeps a secret: people sign in, and the page shows who they are. Sessions are in memory."""

import html
import json
import secrets
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import requests
from authlib.integrations.requests_client import OAuth2Session

app = json.load(open("app.json"))
server = requests.get(app["issuer"] + "/.well-known/openid-configuration").json()
waiting = {}  # What a sign-in needs at its end, by the cookie of the browser.


class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        path = urlsplit(self.path).path
        if path == "/callback":
            return self.callback()
        if path != "/":
            return self.answer(404)
        session = OAuth2Session(
            app["client_id"], app["client_secret"], scope=app["scope"], redirect_uri=app["redirect_uri"],
            code_challenge_method="S256",
        )
        verifier, cookie = secrets.token_urlsafe(48), secrets.token_urlsafe(16)
        address, state = session.create_authorization_url(server["authorization_endpoint"], code_verifier=verifier)
        waiting[cookie] = (session, state, verifier)
        self.answer(302, {"Location": address, "Set-Cookie": f"app={cookie}; HttpOnly; SameSite=Lax; Path=/"})

    def callback(self):
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("app")
        session, state, verifier = waiting.pop(cookie.value if cookie else "", (None, None, None))
        if session is None:
            return self.answer(400, text="This sign-in was not started here. Open / to begin.")
        # Checks the state, and raises an error if the person did not agree.
        session.fetch_token(
            server["token_endpoint"], authorization_response=self.path, state=state, code_verifier=verifier
        )
        person = session.get(server["userinfo_endpoint"]).json()
        self.answer(200, text=f"Signed in as {html.escape(person.get('name', person['sub']))}")

    def log_message(self, *_):
        """The address of the callback contains the code, which belongs in no log."""

    def answer(self, status, headers={}, text=""):
        self.send_response(status)
        for name, value in {"Content-Type": "text/html; charset=utf-8", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())


port = urlsplit(app["redirect_uri"]).port
print(f"open http://localhost:{port}/", flush=True)
ThreadingHTTPServer(("127.0.0.1", port), Pages).serve_forever()
