"""django-oauth-toolkit with the clients of the profile django-oauth-toolkit.toml."""

import os

from django_site import SECRET, serve, set_up
from jwcrypto.jwk import JWK

os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
set_up("oauth2_provider", __name__, OAUTH2_PROVIDER={
    "OIDC_ENABLED": True,
    "OIDC_RSA_PRIVATE_KEY": JWK.generate(kty="RSA", size=2048).export_to_pem(True, None).decode(),
    "OIDC_RP_INITIATED_LOGOUT_ENABLED": True,
    "OAUTH2_VALIDATOR_CLASS": f"{__name__}.Validator",
    "SCOPES": {name: name for name in ["openid", "profile", "email", "introspection"]},
    "DEFAULT_SCOPES": ["openid"],
    "ALLOWED_SCHEMES": ["http", "https"],
})

from django.contrib.auth.views import LoginView  # noqa: E402
from django.urls import include, path  # noqa: E402
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


def add(client_id, uris, kind, grant, secret=""):
    Application.objects.create(
        client_id=client_id, redirect_uris=" ".join(uris), client_type=kind, authorization_grant_type=grant,
        client_secret=secret, algorithm="RS256", name=client_id,
    )


code = Application.GRANT_AUTHORIZATION_CODE
add("public", ["https://diary.app.example/callback", "https://diary.app.example/other"], "public", code)
add("confidential", ["https://office.app.example/callback"], "confidential", code, SECRET)
add("implicit", ["https://widget.app.example/callback"], "public", Application.GRANT_IMPLICIT)
add("device", [], "public", Application.GRANT_DEVICE_CODE)
add("resource-server", [], "confidential", Application.GRANT_CLIENT_CREDENTIALS, SECRET)
serve("/o")
