"""A Django site with two users and a page for the sign-in, on which the servers of the tests are based. Its data is in a
folder that ends with it."""

import logging
import secrets
import sys
import tempfile

import django
from django.conf import settings
from django.core.management import call_command
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application

SECRET = "a-secret-only-for-tests-0123456789"
LOGIN = '<form method="post">{% csrf_token %}{{ form }}<button>Sign in</button></form>'

folder = tempfile.TemporaryDirectory()


def set_up(app, urls, **more):
    """Configures Django with an app and the module that has `urlpatterns`, and creates the tables and the users."""
    processors = ["template.context_processors.request", "contrib.auth.context_processors.auth"]
    settings.configure(
        SECRET_KEY=secrets.token_hex(),
        ALLOWED_HOSTS=["localhost"],
        INSTALLED_APPS=[
            "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", app,
        ],
        MIDDLEWARE=[
            "django.middleware.security.SecurityMiddleware",
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.middleware.clickjacking.XFrameOptionsMiddleware",
        ],
        ROOT_URLCONF=urls,
        DATABASES={"default": {
            "ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder.name}/data",
            "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA synchronous = OFF"},
        }},
        TEMPLATES=[{
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "context_processors": [f"django.{name}" for name in processors],
                "loaders": [
                    ("django.template.loaders.locmem.Loader", {"registration/login.html": LOGIN}),
                    "django.template.loaders.app_directories.Loader",
                ],
            },
        }],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        USE_TZ=True,
        **more,
    )
    django.setup()
    logging.disable()
    call_command("migrate", verbosity=0)
    from django.contrib.auth.models import User

    for name in ["ada", "bea"]:
        User.objects.create_user(
            name, f"{name}@t.example", f"the password of {name}", first_name=name.title(), last_name="Example"
        )


class Quiet(WSGIRequestHandler):
    def log_message(self, *_): pass


def serve(issuer_path):
    """Serves the site at the port of the first argument, or at any, and prints the issuer when it is ready."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    server = ThreadedWSGIServer(("localhost", port), Quiet)
    server.set_app(get_wsgi_application())
    print(f"http://localhost:{server.server_port}{issuer_path}", flush=True)
    server.serve_forever()
