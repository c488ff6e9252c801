#!/usr/bin/env bash
# A back end without users: gets a token with its private key (SMART Backend Services) and counts the patients.
set -euo pipefail

member() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p"; }
app() { member "$1" < app.json; }
encode() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
if [ "$(app ca)" != null ]; then CURL_CA_BUNDLE=$(app ca) && export CURL_CA_BUNDLE; fi

endpoint=$(curl -sf "$(app issuer)/.well-known/openid-configuration" | member token_endpoint)

# A signed statement of who the client is, for this endpoint and for five minutes.
header='{"alg":"ES384","typ":"JWT","kid":"'$(app kid)'"}'
claims='{"iss":"'$(app client_id)'","sub":"'$(app client_id)'","aud":"'$endpoint'","jti":"'$(openssl rand -hex 16)'",
  "exp":'$(($(date +%s) + 300))'}'
signed=$(printf %s "$header" | encode).$(printf %s "$claims" | encode)
# A JWT has the two numbers of the signature with 48 bytes each; openssl writes them in DER.
numbers=$(printf %s "$signed" | openssl dgst -sha384 -sign private.pem | openssl asn1parse -inform DER | sed -n 's/.*INTEGER *://p')
hex=$(for number in $numbers; do printf '%96s' "$number"; done | tr ' ' 0)
assertion=$signed.$(printf "$(sed 's/../\\x&/g' <<< "$hex")" | encode)

token=$(curl -sf --data-urlencode grant_type=client_credentials --data-urlencode "scope=$(app scope)" \
  --data-urlencode client_assertion_type=urn:ietf:params:oauth:client-assertion-type:jwt-bearer \
  --data-urlencode "client_assertion=$assertion" "$endpoint")
echo "token for $(member scope <<< "$token"), valid for $(member expires_in <<< "$token") s"

count=$(curl -sf -H "Authorization: Bearer $(member access_token <<< "$token")" "$(app fhir_base)/Patient?_summary=count")
echo "patients on the server: $(member total <<< "$count")"
