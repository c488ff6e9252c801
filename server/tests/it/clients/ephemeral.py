"""Uses the helper of `examples/ephemeral` as the tests of an app do."""

import os
import sys
import time

sys.path.insert(0, sys.argv[1])
from trefoil import Trefoil

program, rounds = sys.argv[2], int(sys.argv[3])
ready, tokens = [], []
for _ in range(rounds):
    started = time.monotonic()
    with Trefoil(program) as server:
        ready.append(time.monotonic() - started)
        assert server.token()
        tokens.append(time.monotonic() - started)
with Trefoil(program) as server:
    assert server.get("Patient/pat-01")["id"] == "pat-01"
    first, data = server.base_url, server.data
    server.reset()
    assert server.base_url != first and not os.path.exists(data)
    assert server.demo["user"]["password"]
print(f"client ready {sorted(ready)[rounds // 2]:.3f} s, first token {sorted(tokens)[rounds // 2]:.3f} s, all good")
