"""django-oauth-toolkit with the clients of the profile django-oauth-toolkit.toml. It prints its issuer when it is
ready, and keeps its data in a folder that ends with it."""

import logging
import os
import secrets
import sys
import tempfile

import django
from django.conf import settings
from django.core.management import call_command
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application
from django.urls import include, path
from jwcrypto.jwk import JWK

SECRET = "a-secret-only-for-tests-0123456789"
LOGIN = '<form method="post">{% csrf_token %}{{ form }}<button>Sign in</button></form>'

folder = tempfile.TemporaryDirectory()
os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
settings.configure(
    SECRET_KEY=secrets.token_hex(),
    ALLOWED_HOSTS=["localhost"],
    INSTALLED_APPS=[
        "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "oauth2_provider",
    ],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware", "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {
        "ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder.name}/data",
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA synchronous = OFF"},
    }},
    TEMPLATES=[{
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {
            "context_processors": ["django.template.context_processors.request"],
            "loaders": [
                ("django.template.loaders.locmem.Loader", {"registration/login.html": LOGIN}),
                "django.template.loaders.app_directories.Loader",
            ],
        },
    }],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    USE_TZ=True,
    OAUTH2_PROVIDER={
        "OIDC_ENABLED": True,
        "OIDC_RSA_PRIVATE_KEY": JWK.generate(kty="RSA", size=2048).export_to_pem(True, None).decode(),
        "OIDC_RP_INITIATED_LOGOUT_ENABLED": True,
        "OAUTH2_VALIDATOR_CLASS": f"{__name__}.Validator",
        "SCOPES": {name: name for name in ["openid", "profile", "email", "introspection"]},
        "DEFAULT_SCOPES": ["openid"],
        "ALLOWED_SCHEMES": ["http", "https"],
    },
)
django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.contrib.auth.views import LoginView  # noqa: E402
from oauth2_provider import urls  # noqa: E402
from oauth2_provider.models import Application  # noqa: E402
from oauth2_provider.oauth2_validators import OAuth2Validator  # noqa: E402


class Validator(OAuth2Validator):
    def get_additional_claims(self):
        return {"name": lambda request: request.user.get_full_name(), "email": lambda request: request.user.email}


urlpatterns = [
    path("accounts/login/", LoginView.as_view()),
    path("", include((urls.metadata_urlpatterns, "metadata"))),
    path("o/", include(urls)),
]


class Quiet(WSGIRequestHandler):
    def log_message(self, *_): pass


def add(client_id, uris, kind, grant, secret=""):
    Application.objects.create(
        client_id=client_id, redirect_uris=" ".join(uris), client_type=kind, authorization_grant_type=grant,
        client_secret=secret, algorithm="RS256", name=client_id,
    )


logging.disable()
call_command("migrate", verbosity=0)
for name in ["ada", "bea"]:
    User.objects.create_user(
        name, f"{name}@t.example", f"the password of {name}", first_name=name.title(), last_name="Example"
    )
code = Application.GRANT_AUTHORIZATION_CODE
add("public", ["https://diary.app.example/callback", "https://diary.app.example/other"], "public", code)
add("confidential", ["https://office.app.example/callback"], "confidential", code, SECRET)
add("implicit", ["https://widget.app.example/callback"], "public", Application.GRANT_IMPLICIT)
add("device", [], "public", Application.GRANT_DEVICE_CODE)
add("resource-server", [], "confidential", Application.GRANT_CLIENT_CREDENTIALS, SECRET)

port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
server = ThreadedWSGIServer(("localhost", port), Quiet)
server.set_app(get_wsgi_application())
print(f"http://localhost:{server.server_port}/o", flush=True)
server.serve_forever()
