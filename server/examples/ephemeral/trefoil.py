"""A Trefoil server for the tests of an app: it is ready at once, and forgets everything when it stops.

    with Trefoil() as server:
        patients = server.get("Patient")

It needs the program `trefoil` and nothing but Python's standard library. The server ends with the process that started
it, however that ends.
"""

import base64
import collections
import json
import subprocess
import threading
import urllib.parse
import urllib.request

CLIENT = "tests"
# Seconds until a server must be ready, and the lines of its log that an error shows.
PATIENCE = 60
SHOWN = 20


class Trefoil:
    """A server on a free port, with the demo project and a client of its own."""

    def __init__(self, program="trefoil", scope="system/*.cruds"):
        self.program, self.scope = program, scope
        self.start()

    def start(self):
        """Starts the server, and waits until it is ready."""
        facts = json.loads(self._announced())
        self.base_url, self.fhir_base, self.data = facts["base_url"], facts["fhir_base"], facts["data"]
        # Users and clients of the demo project, with passwords, secrets and keys.
        self.demo = facts["demo"]
        add = [self.program, "client", "add", CLIENT, "--json", "--data", self.data]
        add += ["--auth-method", "client_secret_basic", "--grant-type", "client_credentials"]
        added = subprocess.run(add + ["--scope", self.scope], check=True, capture_output=True, text=True)
        records = [json.loads(line) for line in added.stdout.splitlines() if line.startswith("{")]
        self._secret = next(record["client_secret"] for record in records if "client_secret" in record)

    def _announced(self):
        """The line that the server prints when it is ready."""
        command, pipe = [self.program, "serve", "--ephemeral", "--insecure-http"], subprocess.PIPE
        try:
            # The server ends when the pipe to its standard input closes.
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        except OSError as error:
            raise RuntimeError(f"cannot start {self.program}: {error}; install it, or pass its path") from None
        log = collections.deque(maxlen=SHOWN)
        reader = threading.Thread(target=log.extend, args=(self._process.stderr,), daemon=True)
        reader.start()
        late = threading.Timer(PATIENCE, self._process.kill)
        late.start()
        line = self._process.stdout.readline()
        late.cancel()
        if not line:
            code = self._process.wait()
            reader.join(1)
            raise RuntimeError(f"{self.program} ended with {code} before it was ready\n{''.join(log)}".rstrip())
        return line

    def token(self, scope=None):
        """An access token of the client."""
        form = urllib.parse.urlencode({"grant_type": "client_credentials", "scope": scope or self.scope})
        basic = base64.b64encode(f"{CLIENT}:{self._secret}".encode()).decode()
        headers = {"Authorization": f"Basic {basic}"}
        request = urllib.request.Request(f"{self.base_url}/oauth2/token", form.encode(), headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["access_token"]

    def get(self, path):
        """A resource or a search, such as `Patient/p1` or `Patient?family=Marsh`."""
        headers = {"Authorization": f"Bearer {self.token()}"}
        request = urllib.request.Request(f"{self.fhir_base}/{path}", headers=headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def reset(self):
        """A new server, with the demo project only. It has another address."""
        self.stop()
        self.start()

    def stop(self):
        """Stops the server. Nothing of it is left."""
        self._process.terminate()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
