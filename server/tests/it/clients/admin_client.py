"""A client that openapi-python-client generates manages users, clients and keys. Arguments: the base URL, an access
token for /admin, and an empty folder for the generated package."""

import json
import subprocess
import sys
import urllib.request

base, token, folder = sys.argv[1:]

with urllib.request.urlopen(f"{base}/admin/openapi.json") as answer:
    description = json.load(answer)
path = f"{folder}/openapi.json"
with open(path, "w", encoding="utf-8") as file:
    json.dump(description, file)
generate = [sys.executable, "-m", "openapi_python_client", "generate", "--path", path, "--meta", "none"]
subprocess.run([*generate, "--output-path", f"{folder}/trefoil_admin"], check=True, stdout=subprocess.DEVNULL)
sys.path.insert(0, folder)

from trefoil_admin import AuthenticatedClient
from trefoil_admin.api.client import client_add, client_rotate_secret, client_show
from trefoil_admin.api.keys import keys_list
from trefoil_admin.api.server import status
from trefoil_admin.api.user import user_add, user_change, user_delete, user_disable, user_list, user_sessions, user_show
from trefoil_admin.models import ClientAddBody, ClientRotateSecretBody, Error, UserAddBody, UserChangeBody

client = AuthenticatedClient(base_url=base, token=token)

added = user_add.sync(client=client, body=UserAddBody("grace", password="a walk in the garden", name="Grace Example"))
assert added.username == "grace" and added.claims.to_dict()["name"] == "Grace Example", added
sub = added.sub
taken = user_add.sync(client=client, body=UserAddBody("grace"))
assert isinstance(taken, Error) and taken.error == "conflict", taken

changed = user_change.sync(sub, client=client, body=UserChangeBody(email="grace@mail.example", email_verified=True))
assert changed.claims.to_dict()["email"] == "grace@mail.example", changed
page = user_list.sync(client=client, count=1)
assert len(page.users) == 1 and page.next_, page
assert sub in [user.sub for user in user_list.sync(client=client).users]
assert user_disable.sync_detailed(sub, client=client).status_code == 204
shown = user_show.sync(sub, client=client)
assert shown.disabled and shown.password and shown.passkeys == [], shown
assert user_sessions.sync(sub, client=client).sessions == []

shop = client_add.sync(
    client=client,
    body=ClientAddBody("shop", redirect_uris=["https://shop.example/cb"], scope="openid", token_endpoint_auth_methods=["client_secret_basic"]),
)
assert shop.client_secret, shop
rotated = client_rotate_secret.sync("shop", client=client, body=ClientRotateSecretBody(overlap_s=60))
assert rotated.client_secret != shop.client_secret
assert client_show.sync("shop", client=client).secrets == 2

assert {key.stage for key in keys_list.sync(client=client).keys} >= {"active", "next"}
assert status.sync(client=client).is_running
assert user_delete.sync_detailed(sub, client=client).status_code == 204
assert isinstance(user_show.sync(sub, client=client), Error)

print("all good")
