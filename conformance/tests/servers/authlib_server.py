"""A small OpenID provider of Authlib and Flask with the clients of the profile authlib.toml, as its documentation
describes one. It prints its issuer when it is ready."""

import os
import secrets
import sys
import time
from types import SimpleNamespace

from authlib.integrations.flask_oauth2 import AuthorizationServer, ResourceProtector, current_token
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import ClientMixin, TokenMixin, grants
from authlib.oauth2.rfc6750 import BearerTokenValidator
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc7662 import IntrospectionEndpoint
from authlib.oauth2.rfc9207 import IssuerParameter
from authlib.oidc.core import AuthorizationCodeMixin
from authlib.oidc.core.grants import OpenIDCode
from flask import Flask, jsonify, redirect, request, session
from joserfc.jwk import RSAKey
from markupsafe import escape
from werkzeug.serving import make_server

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
app = Flask(__name__)
app.secret_key = secrets.token_bytes(32)
app.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = True
key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
SECRET = "a-secret-only-for-tests-0123456789"
USERS = {
    "ada": {"sub": "1", "name": "Ada Example", "email": "ada@t.example"},
    "bea": {"sub": "2", "name": "Bea Example", "email": "bea@t.example"},
}
codes, tokens = {}, []


class Client(ClientMixin, SimpleNamespace):
    def get_client_id(self): return self.client_id
    def get_default_redirect_uri(self): return None
    def check_redirect_uri(self, uri): return uri in self.redirect_uris
    def check_client_secret(self, secret): return secrets.compare_digest(self.secret or "", secret)
    def check_response_type(self, kind): return kind == "code" and bool(self.redirect_uris)
    def check_grant_type(self, kind): return kind in self.grant_types

    def get_allowed_scope(self, scope):
        allowed = {"openid", "profile", "email"}
        return " ".join(name for name in (scope or "").split() if name in allowed)

    def check_endpoint_auth_method(self, method, endpoint):
        return method == ("client_secret_basic" if self.secret else "none")


def client(client_id, uris, secret=None, more=("refresh_token",)):
    return Client(client_id=client_id, redirect_uris=uris, secret=secret, grant_types=["authorization_code", *more])


CLIENTS = {each.client_id: each for each in [
    client("public", ["https://diary.app.example/callback", "https://diary.app.example/other"]),
    client("confidential", ["https://office.app.example/callback"], SECRET),
    client("resource-server", [], SECRET, ["client_credentials"]),
]}


class Code(AuthorizationCodeMixin, SimpleNamespace):
    def get_redirect_uri(self): return self.redirect_uri
    def get_scope(self): return self.scope
    def get_nonce(self): return self.nonce
    def get_auth_time(self): return self.auth_time
    def get_acr(self): return None
    def get_amr(self): return None


class Token(TokenMixin, SimpleNamespace):
    revoked = False

    def check_client(self, client): return client.client_id == self.client_id
    def get_scope(self): return self.scope
    def get_expires_in(self): return self.expires_in
    def is_expired(self): return time.time() > self.issued_at + self.expires_in
    def is_revoked(self): return self.revoked
    def get_user(self): return self.user
    def get_client(self): return CLIENTS[self.client_id]


def find(text, *kinds):
    return next((token for token in tokens if text in [getattr(token, kind, None) for kind in kinds]), None)


def save_token(token, asked):
    tokens.append(Token(client_id=asked.client.client_id, user=asked.user, issued_at=time.time(), **token))


class AuthorizationCode(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "none"]

    def save_authorization_code(self, code, asked):
        data = asked.payload.data
        codes[code] = Code(
            code=code, client_id=asked.client.client_id, redirect_uri=asked.payload.redirect_uri,
            scope=asked.scope, user=asked.user, nonce=data.get("nonce"), auth_time=session["time"],
            code_challenge=data.get("code_challenge"), code_challenge_method=data.get("code_challenge_method"),
        )

    def query_authorization_code(self, code, client):
        found = codes.get(code)
        return found if found and found.client_id == client.client_id else None

    def delete_authorization_code(self, code): del codes[code.code]
    def authenticate_user(self, code): return code.user


class Refresh(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "none"]
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, text):
        token = find(text, "refresh_token")
        return None if token is None or token.revoked else token

    def authenticate_user(self, token): return token.user
    def revoke_old_credential(self, token): token.revoked = True


class OpenId(OpenIDCode):
    # Another thread may add a code meanwhile.
    def exists_nonce(self, nonce, asked): return any(code.nonce == nonce for code in list(codes.values()))
    def resolve_client_private_key(self, client): return key
    def get_client_algorithm(self, client): return "RS256"
    def get_client_claims(self, client): return {"iss": issuer, "aud": [client.client_id]}
    def generate_user_info(self, user, scope): return claims_of(user, scope)


class Revocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = ["client_secret_basic", "none"]

    def query_token(self, text, hint): return find(text, "access_token", "refresh_token")
    def revoke_token(self, token, asked): token.revoked = True


class Introspection(IntrospectionEndpoint):
    def query_token(self, text, hint): return find(text, "access_token", "refresh_token")
    def check_permission(self, token, client, asked): return client.client_id == "resource-server"

    def introspect_token(self, token):
        until = int(token.issued_at + token.expires_in)
        sub = token.user["sub"] if token.user else token.client_id
        return {"active": True, "client_id": token.client_id, "scope": token.scope, "sub": sub, "exp": until, "iss": issuer}


class Validator(BearerTokenValidator):
    def authenticate_token(self, text): return find(text, "access_token")


class Issuer(IssuerParameter):
    def get_issuer(self): return issuer


def claims_of(user, scope):
    names = {"sub"} | ({"name"} if "profile" in scope else set()) | ({"email"} if "email" in scope else set())
    return {name: user[name] for name in names}


server = AuthorizationServer(app, CLIENTS.get, save_token)
server.register_grant(AuthorizationCode, [OpenId(), CodeChallenge(required=True)])
server.register_grant(Refresh, [OpenId()])
server.register_grant(grants.ClientCredentialsGrant)
server.register_endpoint(Revocation)
server.register_endpoint(Introspection)
server.register_extension(Issuer())
protect = ResourceProtector()
protect.register_token_validator(Validator())


@app.route("/authorize", methods=["GET", "POST"])
def authorize():
    user = USERS.get(session.get("user"))
    try:
        grant = server.get_consent_grant(end_user=user)
    except OAuth2Error as error:
        return server.handle_error_response(server.create_oauth2_request(request), error)
    if request.method == "POST" and not user:
        name = request.form.get("username")
        if name not in USERS or request.form.get("password") != f"the password of {name}":
            return "wrong user name or password", 401
        session.update(user=name, time=int(time.time()))
        return redirect(request.url, 303)
    if request.method == "POST" or grant.prompt == "none":
        allows = "allow" in request.form or grant.prompt == "none"
        return server.create_authorization_response(grant=grant, grant_user=user if allows else None)
    if grant.prompt == "login" and not user:
        return '<form method="post"><input name="username"><input name="password" type="password"><button>Sign in</button></form>'
    return f'<form method="post"><p>{escape(grant.client.client_id)}</p><button name="allow">Allow</button><button name="deny">Deny</button></form>'


@app.post("/token")
def token(): return server.create_token_response()


@app.post("/revoke")
def revoke(): return server.create_endpoint_response("revocation")


@app.post("/introspect")
def introspect(): return server.create_endpoint_response("introspection")


@app.route("/userinfo", methods=["GET", "POST"])
@protect("openid")
def userinfo():
    return jsonify(claims_of(current_token.user, current_token.scope))


@app.get("/jwks")
def jwks(): return jsonify(keys=[key.as_dict(private=False)])


@app.get("/.well-known/openid-configuration")
def configuration():
    methods = ["client_secret_basic", "none"]
    return jsonify(
        issuer=issuer, authorization_endpoint=f"{issuer}/authorize", token_endpoint=f"{issuer}/token",
        userinfo_endpoint=f"{issuer}/userinfo", jwks_uri=f"{issuer}/jwks", revocation_endpoint=f"{issuer}/revoke",
        introspection_endpoint=f"{issuer}/introspect", scopes_supported=["openid", "profile", "email"],
        response_types_supported=["code"], subject_types_supported=["public"],
        grant_types_supported=["authorization_code", "refresh_token", "client_credentials"],
        id_token_signing_alg_values_supported=["RS256"], token_endpoint_auth_methods_supported=methods,
        revocation_endpoint_auth_methods_supported=methods, code_challenge_methods_supported=["S256", "plain"],
        introspection_endpoint_auth_methods_supported=["client_secret_basic"],
        authorization_response_iss_parameter_supported=True,
        claims_supported=["sub", "name", "email"],
    )


http = make_server("localhost", int(sys.argv[1]) if len(sys.argv) > 1 else 0, app, threaded=True)
issuer = f"http://localhost:{http.server_port}"
print(issuer, flush=True)
http.serve_forever()
