"""
Models behind URLs
==================

A candidate may be a web service. ``HttpCandidate`` sends the rows as JSON and reads one number
per row. This example starts a small server on this machine, so that it runs without a network.
"""

# %%
# A service that predicts rents from the area. It stands in for somebody else's model.
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import matplotlib.pyplot as plt
import numpy as np

from localma import LocalMARegressor
from localma.candidates import HttpCandidate


class RentService(BaseHTTPRequestHandler):
    """Answer {"columns": null, "rows": [[area, distance], ...]} with {"predictions": [...]}."""

    def do_POST(self):
        """Predict thirty per square metre."""
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["rows"]
        answer = json.dumps({"predictions": [30 * row[0] for row in rows]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        """Write no log."""


server = ThreadingHTTPServer(("127.0.0.1", 0), RentService)
Thread(target=server.serve_forever, daemon=True).start()


def city_model(X):
    """Predict sixty per square metre: a model on this machine."""
    return 60 * X[:, 0]


# %%
rng = np.random.default_rng(0)
X = np.column_stack([rng.uniform(20, 150, 600), rng.uniform(0, 10, 600)])  # area, distance
rent = X[:, 0] * (30 + 30 * np.exp(-X[:, 1] / 2)) + 100 * rng.normal(size=600)

service = HttpCandidate(f"http://127.0.0.1:{server.server_port}/rent", timeout=5)
model = LocalMARegressor({"service": service, "city": city_model}, random_state=0)
model.fit(X[:400], rent[:400])
print(model.verdict_)

# %%
weights = model.predict_weights(X[400:])
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.scatter(X[400:, 1], weights[:, 0], s=8)
ax.set(xlabel="distance from the centre (km)", ylabel="weight of the service", ylim=(0, 1))
plt.show()
server.shutdown()
server.server_close()
