import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * A server for the tests of a class: {@code @RegisterExtension static Trefoil trefoil = new Trefoil();}. It has the demo
 * project, and ends with the tests or with their process. Copy this file; it needs the program {@code trefoil} on the
 * PATH, or its path in the system property {@code trefoil.program}.
 */
public class Trefoil implements BeforeAllCallback, AfterAllCallback {
    private static final String PROGRAM = System.getProperty("trefoil.program", "trefoil");
    private static final String SCOPE = "system/*.cruds";
    private final HttpClient http = HttpClient.newHttpClient();
    private Process server;
    private String facts;
    private String secret;

    @Override
    public void beforeAll(ExtensionContext context) throws Exception {
        // The server ends when the pipe to its standard input closes. Its log goes to the log of the tests.
        server = new ProcessBuilder(PROGRAM, "serve", "--ephemeral", "--insecure-http")
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        facts = server.inputReader().readLine();
        if (facts == null) throw new IOException(PROGRAM + " ended with " + server.waitFor() + " before it was ready");
        Process add = new ProcessBuilder(PROGRAM, "client", "add", "tests", "--json", "--data", member(facts, "data"),
            "--auth-method", "client_secret_basic", "--grant-type", "client_credentials", "--scope", SCOPE)
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        secret = member(new String(add.getInputStream().readAllBytes(), UTF_8), "client_secret");
    }

    @Override
    public void afterAll(ExtensionContext context) throws Exception {
        server.destroy();
        server.waitFor();
    }

    public String baseUrl() {
        return member(facts, "base_url");
    }

    public String fhirBase() {
        return member(facts, "fhir_base");
    }

    /** An access token of a client with all rights. */
    public String token() throws Exception {
        String form = "grant_type=client_credentials&scope=" + URLEncoder.encode(SCOPE, UTF_8);
        String basic = Base64.getEncoder().encodeToString(("tests:" + secret).getBytes(UTF_8));
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(baseUrl() + "/oauth2/token"))
            .headers("Authorization", "Basic " + basic, "Content-Type", "application/x-www-form-urlencoded");
        return member(send(request.POST(HttpRequest.BodyPublishers.ofString(form))), "access_token");
    }

    /** The JSON of a resource or a search, such as {@code Patient/p1} or {@code Patient?family=Marsh}. */
    public String get(String path) throws Exception {
        return send(HttpRequest.newBuilder(URI.create(fhirBase() + "/" + path)).header("Authorization", "Bearer " + token()));
    }

    /** Stores the JSON of a resource at a path such as {@code Patient/p1}, and returns what is stored. */
    public String put(String path, String resource) throws Exception {
        return send(HttpRequest.newBuilder(URI.create(fhirBase() + "/" + path))
            .headers("Authorization", "Bearer " + token(), "Content-Type", "application/fhir+json")
            .PUT(HttpRequest.BodyPublishers.ofString(resource)));
    }

    private String send(HttpRequest.Builder builder) throws Exception {
        HttpRequest request = builder.build();
        var answer = http.send(request, BodyHandlers.ofString());
        if (List.of(200, 201).contains(answer.statusCode())) return answer.body();
        throw new IOException(request.method() + " " + request.uri() + ": " + answer.statusCode() + " " + answer.body());
    }

    /** A member of JSON that is a text without escapes. Use your parser of JSON where you have one. */
    private static String member(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\\s*\"([^\"]*)\"").matcher(json);
        if (!found.find()) throw new IllegalStateException("no " + name + " in " + json);
        return found.group(1);
    }
}
