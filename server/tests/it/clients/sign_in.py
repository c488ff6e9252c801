"""A Python client with nothing but the standard library: sign-in with PKCE, userinfo, terminology."""
import base64, hashlib, html, http.cookiejar, json, re, secrets, ssl, sys, urllib.error, urllib.parse, urllib.request

folder = sys.argv[1]
endpoint = json.load(open(folder + "/endpoint.json"))
demo = json.load(open(folder + "/demo.json"))
base, fhir, client, user = endpoint["base_url"], endpoint["fhir_base"], demo["public"], demo["user"]


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


tls = ssl.create_default_context(cafile=endpoint["ca"])
jar = http.cookiejar.CookieJar()
browser = urllib.request.build_opener(
    urllib.request.HTTPSHandler(context=tls), urllib.request.HTTPCookieProcessor(jar), Stay
)


def call(url, form=None, headers={}):
    data = urllib.parse.urlencode(form).encode() if form is not None else None
    try:
        return browser.open(urllib.request.Request(url, data, headers))
    except urllib.error.HTTPError as answer:
        return answer


verifier = secrets.token_urlsafe(48)
challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
query = urllib.parse.urlencode({
    "response_type": "code", "client_id": client["client_id"], "redirect_uri": client["redirect_uris"][0],
    "scope": "openid profile email user/ValueSet.rs", "state": "a b&c", "code_challenge": challenge,
    "code_challenge_method": "S256",
})
answer = call(f"{base}/oauth2/authorize?{query}")
assert answer.status == 302, answer.status
page = call(answer.headers["Location"]).read().decode()
fields = {name: html.unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)}
answer = call(f"{base}/sign-in", {**fields, "username": user["username"], "password": user["password"]})
assert answer.status == 303, answer.status
answer = call(answer.headers["Location"])
assert answer.status == 302, answer.status
back = urllib.parse.urlsplit(answer.headers["Location"])
got = dict(urllib.parse.parse_qsl(back.query))
assert got["state"] == "a b&c" and got["iss"] == base and not back.fragment, got
tokens = json.load(call(f"{base}/oauth2/token", {
    "grant_type": "authorization_code", "code": got["code"], "redirect_uri": client["redirect_uris"][0],
    "client_id": client["client_id"], "code_verifier": verifier,
}))
bearer = {"Authorization": "Bearer " + tokens["access_token"]}
claims = json.load(call(f"{base}/oauth2/userinfo", headers=bearer))
assert claims == {name: claims[name] for name in claims} and claims["sub"] == user["claims"]["sub"], claims
assert claims["name"] == user["claims"]["name"] and claims["email"] == user["claims"]["email"], claims
fact = next(fact for fact in demo["members"] if fact["member"])
asked = urllib.parse.urlencode({"url": fact["value_set"], "system": fact["system"], "code": fact["code"]})
answer = json.load(call(f"{fhir}/ValueSet/$validate-code?{asked}", headers=bearer))
values = {p["name"]: p for p in answer["parameter"]}
assert values["result"]["valueBoolean"] is True and values["display"]["valueString"] == fact["display"], answer
print("all good")
