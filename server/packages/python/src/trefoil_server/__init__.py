"""A Trefoil server for the tests of an app: it is ready at once, and forgets everything when it stops.

    with Trefoil() as server:
        patients = server.get("Patient")

It needs nothing but Python's standard library. The server ends with the process that started it, however that ends.
"""

import base64
import collections
import json
import os
import subprocess
import sysconfig
import threading
import typing
import urllib.parse
import urllib.request

__all__ = ["Resource", "Trefoil", "program_path"]

Resource = typing.Dict[str, typing.Any]

CLIENT = "tests"
# Seconds until a server must be ready, and the lines of its log that an error shows.
PATIENCE = 60
SHOWN = 20


def program_path(name: str = "trefoil") -> str:
    """The program that pip installed with this package. Without it, the name, which the PATH resolves."""
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    paths = [os.path.join(sysconfig.get_path("scripts", scheme), name) for scheme in schemes]
    return next((path for path in paths if os.path.exists(path)), name)


class Trefoil:
    """A server on a free port, with the demo project and a client of its own."""

    base_url: str
    """Address of the server, such as `http://localhost:43210`."""
    fhir_base: str
    """Base of the FHIR interface."""
    data: str
    """Data folder, for administration commands with `--data`."""
    demo: typing.Dict[str, typing.Any]
    """Users and clients of the demo project, with passwords, secrets and keys."""

    def __init__(self, program: typing.Optional[str] = None, scope: str = "system/*.cruds") -> None:
        self.program, self.scope = program or program_path(), scope
        self._start([])

    def _start(self, options: typing.List[str]) -> None:
        facts = json.loads(self._announced(options))
        self.base_url, self.fhir_base, self.data = facts["base_url"], facts["fhir_base"], facts["data"]
        self.demo = facts["demo"]
        add = [self.program, "client", "add", CLIENT, "--json", "--data", self.data]
        add += ["--auth-method", "client_secret_basic", "--grant-type", "client_credentials"]
        added = subprocess.run(add + ["--scope", self.scope], check=True, capture_output=True, text=True)
        records = [json.loads(line) for line in added.stdout.splitlines() if line.startswith("{")]
        self._secret = next(record["client_secret"] for record in records if "client_secret" in record)

    def _announced(self, options: typing.List[str]) -> str:
        """The line that the server prints when it is ready."""
        command, pipe = [self.program, "serve", "--ephemeral", "--insecure-http"] + options, subprocess.PIPE
        try:
            # The server ends when the pipe to its standard input closes.
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        except OSError as error:
            raise RuntimeError(f"cannot start {self.program}: {error}; install it, or pass its path") from None
        log: typing.Deque[str] = collections.deque(maxlen=SHOWN)
        reader = threading.Thread(target=log.extend, args=(self._process.stderr,), daemon=True)
        reader.start()
        late = threading.Timer(PATIENCE, self._process.kill)
        late.start()
        assert self._process.stdout
        line = self._process.stdout.readline()
        late.cancel()
        if not line:
            code = self._process.wait()
            reader.join(1)
            raise RuntimeError(f"{self.program} ended with {code} before it was ready\n{''.join(log)}".rstrip())
        return line

    def token(self, scope: typing.Optional[str] = None) -> str:
        """An access token of the client, for these scopes or for all that it has."""
        form = urllib.parse.urlencode({"grant_type": "client_credentials", "scope": scope or self.scope})
        basic = base64.b64encode(f"{CLIENT}:{self._secret}".encode()).decode()
        headers = {"Authorization": f"Basic {basic}"}
        request = urllib.request.Request(f"{self.base_url}/oauth2/token", form.encode(), headers)
        with urllib.request.urlopen(request) as answer:
            return str(json.load(answer)["access_token"])

    def get(self, path: str) -> Resource:
        """Reads a resource or a search, such as `Patient/p1` or `Patient?family=Marsh`."""
        return self._request("GET", path)

    def put(self, resource: Resource) -> Resource:
        """Stores a resource under its id, or under a new one. Returns what is stored."""
        kind, id = resource["resourceType"], resource.get("id")
        return self._request("PUT", f"{kind}/{id}", resource) if id else self._request("POST", kind, resource)

    def _request(self, method: str, path: str, resource: typing.Optional[Resource] = None) -> Resource:
        headers = {"Authorization": f"Bearer {self.token()}", "Content-Type": "application/fhir+json"}
        body = None if resource is None else json.dumps(resource).encode()
        request = urllib.request.Request(f"{self.fhir_base}/{path}", body, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return typing.cast(Resource, json.load(answer))

    def reset(self) -> None:
        """Starts the server again at the same address, with the demo project only."""
        self.stop()
        self._start(["--listen", f"127.0.0.1:{urllib.parse.urlsplit(self.base_url).port}"])

    def stop(self) -> None:
        """Stops the server. Nothing of it is left."""
        self._process.terminate()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()

    def __enter__(self) -> "Trefoil":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
