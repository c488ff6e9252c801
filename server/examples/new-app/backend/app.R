# A back end without users: gets a token with its private key (SMART Backend Services) and counts the patients.
library(httr)
library(jsonlite)
library(openssl)

app <- fromJSON("app.json")
if (!is.null(app$ca)) set_config(config(cainfo = app$ca))
server <- content(GET(paste0(app$issuer, "/.well-known/openid-configuration")), as = "parsed")

encode <- function(bytes) gsub("=+$", "", chartr("+/", "-_", base64_encode(bytes)))
padded <- function(number) c(raw(48 - length(number)), as.raw(number))

# A signed statement of who the client is, for this endpoint and for five minutes.
header <- list(alg = "ES384", typ = "JWT", kid = app$kid)
claims <- list(
  iss = app$client_id, sub = app$client_id, aud = server$token_endpoint,
  jti = encode(rand_bytes(16)), exp = floor(as.numeric(Sys.time())) + 300
)
parts <- lapply(list(header, claims), function(part) encode(charToRaw(toJSON(part, auto_unbox = TRUE, digits = NA))))
signed <- paste(parts, collapse = ".")
signature <- ecdsa_parse(signature_create(charToRaw(signed), hash = sha384, key = read_key("private.pem")))
assertion <- paste(signed, encode(c(padded(signature$r), padded(signature$s))), sep = ".")

answer <- POST(server$token_endpoint, encode = "form", body = list(
  grant_type = "client_credentials", scope = app$scope,
  client_assertion_type = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer", client_assertion = assertion
))
stop_for_status(answer)
token <- content(answer, as = "parsed")
cat(sprintf("token for %s, valid for %d s\n", token$scope, token$expires_in))

answer <- GET(
  paste0(app$fhir_base, "/Patient"), query = list(`_summary` = "count"),
  add_headers(Authorization = paste("Bearer", token$access_token))
)
stop_for_status(answer)
cat(sprintf("patients on the server: %d\n", fromJSON(content(answer, as = "text", encoding = "UTF-8"))$total))
