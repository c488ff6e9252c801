"""Glewlwyd of Debian on a new SQLite database, with the clients of the profile glewlwyd.toml. Its plugin for OpenID
Connect is set up by the administration API. It prints its issuer when it is ready."""

import json
import os
import socket
import sqlite3
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from joserfc.jwk import RSAKey

SECRET = "a-secret-only-for-tests-0123456789"
SCOPES = ["openid", "profile", "email"]
MODULES = "/usr/lib/glewlwyd"
SCHEMA = Path("/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3")
folder = Path(tempfile.mkdtemp(prefix="glewlwyd-"))

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
base = f"http://localhost:{port}"
issuer = f"{base}/api/oidc"


with sqlite3.connect(folder / "glewlwyd.db") as database:
    database.executescript(SCHEMA.read_text())
database.close()
settings = {
    "port": port,
    "bind_address": "127.0.0.1",
    "external_url": base,
    "login_url": "login.html",
    "api_prefix": "api",
    "static_files_path": "/usr/share/glewlwyd/webapp",
    "static_files_mime_types": [{"extension": ".html", "mime_type": "text/html"}],
    "cookie_domain": "localhost",
    "log_mode": "console",
    "log_level": "ERROR",
    "admin_scope": "g_admin",
    "profile_scope": "g_profile",
    "user_module_path": f"{MODULES}/user",
    "user_middleware_module_path": f"{MODULES}/user_middleware",
    "client_module_path": f"{MODULES}/client",
    "user_auth_scheme_module_path": f"{MODULES}/scheme",
    "plugin_module_path": f"{MODULES}/plugin",
    "hash_algorithm": "SHA512",
    "database": {"type": "sqlite3", "path": str(folder / "glewlwyd.db")},
}


def written(value):
    """A value as libconfig writes it."""
    if isinstance(value, dict):
        return "{ " + " ".join(f"{name} = {written(member)};" for name, member in value.items()) + " }"
    if isinstance(value, list):
        return "( " + ", ".join(map(written, value)) + " )"
    return json.dumps(value)


(folder / "glewlwyd.conf").write_text("\n".join(f"{name} = {written(value)};" for name, value in settings.items()))

# This process becomes the server, so that it ends with it; its child sets it up.
if os.fork():
    os.dup2(2, 1)
    os.execvp("glewlwyd", ["glewlwyd", "--config-file", folder / "glewlwyd.conf"])

session = ""


def send(method, path, body):
    """Sends a request of the administration. Returns the cookie that the answer sets."""
    headers = {"Content-Type": "application/json", "Cookie": session}
    request = urllib.request.Request(f"{base}/api/{path}", json.dumps(body).encode(), headers, method=method)
    try:
        with urllib.request.urlopen(request) as response:
            return response.headers.get("Set-Cookie", "").split(";")[0]
    except urllib.error.HTTPError as error:
        sys.exit(f"glewlwyd: {path}: {error.code} {error.read().decode()}")


for _ in range(100):
    try:
        urllib.request.urlopen(f"{base}/config").read()
        break
    except OSError:
        time.sleep(0.1)

session = send("POST", "auth/", {"username": "admin", "password": "password"})
for scope in SCOPES:
    known = scope == "openid"
    body = {"name": scope, "display_name": scope, "password_required": True, "scheme": {}}
    send("PUT" if known else "POST", f"scope/{scope if known else ''}", body)
for name, given in {"ada": "Ada Example", "bea": "Bea Example"}.items():
    user = {"username": name, "password": f"the password of {name}", "name": given, "email": f"{name}@t.example"}
    send("POST", "user/", user | {"enabled": True, "scope": ["g_profile", *SCOPES]})


def client(client_id, uris, secret=None, types=("code", "refresh_token", "delete_token")):
    method = ["client_secret_basic", "client_secret_post"] if secret else ["none"]
    out = {"client_id": client_id, "name": client_id, "enabled": True, "confidential": bool(secret), "scope": []}
    out |= {"redirect_uri": uris, "authorization_type": list(types), "token_endpoint_auth_method": method}
    send("POST", "client/", out | ({"password": secret, "scope": SCOPES} if secret else {}))


client("public", ["https://diary.app.example/callback", "https://diary.app.example/other"])
client("confidential", ["https://office.app.example/callback"], SECRET)
client("implicit", ["https://kiosk.app.example/callback"], types=["token", "id_token"])
client("device", [], types=["device_authorization", "refresh_token"])

key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"}).as_dict(private=True)
parameters = {
    "iss": issuer, "jwks-private": json.dumps({"keys": [key]}), "jwks-public": "", "jwks-show": True,
    "jwt-type": "rsa", "jwt-key-size": "256", "access-token-duration": 3600, "refresh-token-duration": 1209600,
    "code-duration": 300, "refresh-token-rolling": True, "refresh-token-one-use": "always", "allow-non-oidc": True,
    "auth-type-code-enabled": True, "auth-type-code-revoke-replayed": True, "auth-type-token-enabled": True,
    "auth-type-id-token-enabled": True, "auth-type-none-enabled": False, "auth-type-password-enabled": False,
    "auth-type-client-enabled": True, "auth-type-device-enabled": True, "auth-type-refresh-enabled": True,
    "oauth-as-iss-id": True, "subject-type": "public", "allowed-scope": SCOPES, "scope": [],
    "additional-parameters": [], "claims": [], "name-claim": "on-demand", "name-claim-scope": ["profile"],
    "email-claim": "on-demand", "email-claim-scope": ["email"], "scope-claim": "no", "address-claim": {"type": "no"},
    "pkce-allowed": True, "pkce-method-plain-allowed": False, "pkce-required-public-client": True,
    "introspection-revocation-allowed": True, "introspection-revocation-allow-target-client": True,
    "session-management-allowed": True, "session-cookie-name": "GLEWLWYD2_OIDC_SID",
    "session-cookie-expiration": 2419200, "device-authorization-expiration": 600, "device-authorization-interval": 5,
    "oauth-par-allowed": True, "oauth-par-required": False, "oauth-par-duration": 90,
    "oauth-par-request_uri-prefix": "urn:ietf:params:oauth:request_uri:",
}
send("POST", "mod/plugin/", {"module": "oidc", "name": "oidc", "display_name": "OpenID", "parameters": parameters,
                     "enabled": True})
print(issuer, flush=True)
