// A back end without users: gets a token with its private key (SMART Backend Services) and counts the patients.
// The JDK has all that it needs, except a parser of JSON: this example reads single members of it.
import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.*;
import java.nio.file.*;
import java.security.*;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Instant;
import java.util.*;
import java.util.regex.*;
import java.util.stream.Collectors;
import javax.net.ssl.*;
import static java.nio.charset.StandardCharsets.UTF_8;

public class App {
    public static void main(String[] args) throws Exception {
        String app = Files.readString(Path.of("app.json"));
        HttpClient http = HttpClient.newBuilder().sslContext(trusting(member(app, "ca"))).build();
        String discovery = member(app, "issuer") + "/.well-known/openid-configuration";
        String endpoint = member(send(http, HttpRequest.newBuilder(URI.create(discovery))), "token_endpoint");

        String form = Map.of(
            "grant_type", "client_credentials",
            "scope", member(app, "scope"),
            "client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion", assertion(member(app, "client_id"), member(app, "kid"), endpoint)
        ).entrySet().stream().map(e -> e.getKey() + "=" + URLEncoder.encode(e.getValue(), UTF_8)).collect(Collectors.joining("&"));
        String token = send(http, HttpRequest.newBuilder(URI.create(endpoint))
            .header("Content-Type", "application/x-www-form-urlencoded").POST(HttpRequest.BodyPublishers.ofString(form)));
        System.out.println("token for " + member(token, "scope") + ", valid for " + member(token, "expires_in") + " s");

        String patients = send(http, HttpRequest.newBuilder(URI.create(member(app, "fhir_base") + "/Patient?_summary=count"))
            .header("Authorization", "Bearer " + member(token, "access_token")));
        System.out.println("patients on the server: " + member(patients, "total"));
    }

    /** A signed statement of who the client is, for this endpoint and for five minutes. */
    static String assertion(String client, String kid, String endpoint) throws Exception {
        String header = String.format("{\"alg\":\"ES384\",\"typ\":\"JWT\",\"kid\":\"%s\"}", kid);
        String claims = String.format("{\"iss\":\"%s\",\"sub\":\"%s\",\"aud\":\"%s\",\"jti\":\"%s\",\"exp\":%d}",
            client, client, endpoint, UUID.randomUUID(), Instant.now().getEpochSecond() + 300);
        String signed = encode(header.getBytes(UTF_8)) + "." + encode(claims.getBytes(UTF_8));
        String pem = Files.readString(Path.of("private.pem")).replaceAll("-----[A-Z ]+-----|\\s", "");
        Signature signature = Signature.getInstance("SHA384withECDSAinP1363Format");
        signature.initSign(KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem))));
        signature.update(signed.getBytes(UTF_8));
        return signed + "." + encode(signature.sign());
    }

    static String encode(byte[] bytes) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }

    static String send(HttpClient http, HttpRequest.Builder request) throws Exception {
        HttpResponse<String> answer = http.send(request.build(), HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) throw new IllegalStateException(answer.statusCode() + " " + answer.body());
        return answer.body();
    }

    /** The text or number of a member; null if there is none. */
    static String member(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\"\\s*:\\s*\"?([^\",}]+)").matcher(json);
        return found.find() && !found.group(1).equals("null") ? found.group(1) : null;
    }

    /** Trusts the authority in this PEM file, or without one those of the JDK. */
    static SSLContext trusting(String ca) throws Exception {
        if (ca == null) return SSLContext.getDefault();
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        byte[] pem = Files.readAllBytes(Path.of(ca));
        store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(new ByteArrayInputStream(pem)));
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }
}
