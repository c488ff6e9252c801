"""django-oidc-provider with the clients of the profile django-oidc-provider.toml."""

import io

from django_site import SECRET, serve, set_up

set_up(
    "oidc_provider", __name__, LOGIN_URL="/accounts/login/", OIDC_USERINFO=f"{__name__}.claims_of",
    OIDC_INTROSPECTION_VALIDATE_AUDIENCE_SCOPE=False,
)

from django.contrib.auth.views import LoginView  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.urls import include, path  # noqa: E402
from oidc_provider.models import Client, ResponseType  # noqa: E402

urlpatterns = [
    path("accounts/login/", LoginView.as_view()),
    path("", include("oidc_provider.urls", namespace="oidc_provider")),
]


def claims_of(claims, user):
    claims.update(name=user.get_full_name(), given_name=user.first_name, email=user.email)
    return claims


def add(client_id, uris, kind, response_types, secret="", scopes="openid profile email offline_access"):
    client = Client(name=client_id, client_id=client_id, client_type=kind, client_secret=secret)
    client.redirect_uris = client.post_logout_redirect_uris = uris
    client.scope = scopes.split()
    client.save()
    client.response_types.set(ResponseType.objects.filter(value__in=response_types))


call_command("creatersakey", stdout=io.StringIO())
add("public", ["https://diary.app.example/callback", "https://diary.app.example/other"], "public", ["code"])
add("confidential", ["https://office.app.example/callback"], "confidential", ["code"], SECRET)
add("implicit", ["https://widget.app.example/callback"], "public", ["id_token", "id_token token"])
add("resource-server", [], "confidential", [], SECRET, "token_introspection")
serve("")
