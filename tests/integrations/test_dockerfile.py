"""The steps of the Dockerfile, in an empty environment instead of a container."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.serving.client import column_model, rows_document, sample

ROOT = Path(__file__).parents[2]
X, _ = sample()


def steps():
    """Instructions and their arguments, in order."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]


@pytest.mark.skipif(sys.platform == "win32", reason="the steps are those of a Linux container")
def test_the_steps_lead_to_a_service_that_answers(tmp_path):
    model = column_model()
    model.save(tmp_path / "rent.localma")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    environment = {
        "PATH": os.pathsep.join([str(tmp_path / "venv" / "bin"), os.environ["PATH"]]),
        **{k: v for k, v in os.environ.items() if k.startswith("PIP_") or k == "HOME"},
    }
    here = {"/opt/": f"{tmp_path}/", "/srv/": f"{tmp_path}/srv/", "'localma[": f"'{ROOT}["}
    done = []
    for instruction, arguments in steps():
        for there, mapped in here.items():
            arguments = arguments.replace(there, mapped)
        done.append(instruction)
        if instruction == "ENV":
            environment |= dict(word.split("=", 1) for word in shlex.split(arguments))
        elif instruction == "RUN":
            pinned = f"pip install -q -c {ROOT}/constraints.txt"
            arguments = re.sub("^pip install", pinned, arguments)
            subprocess.run(["sh", "-c", arguments], env=environment, check=True, timeout=600)
        elif instruction == "COPY":
            source, target = shlex.split(arguments)
            Path(target).parent.mkdir(exist_ok=True)
            Path(target).write_bytes((tmp_path / source).read_bytes())
        elif instruction == "CMD":
            command = json.loads(arguments)
            assert command[command.index("--host") + 1] == "0.0.0.0"
    assert done == ["FROM", "RUN", "ENV", "RUN", "COPY", "USER", "EXPOSE", "CMD"]
    command[command.index("--host") + 1] = "127.0.0.1"
    command[command.index("--port") + 1] = "18799"
    _check_service(command, environment, model)


def _check_service(command, environment, model):
    server = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", 18799, timeout=30)
                connection.request("POST", "/v2/models/rent/infer", rows_document(X[:2]))
                document = json.loads(connection.getresponse().read())
                break
            except OSError:
                assert time.monotonic() < end
                assert server.poll() is None
                time.sleep(0.2)
            finally:
                connection.close()
    finally:
        server.terminate()
        server.wait(30)
    assert "outputs" in document, document
    assert document["outputs"][0]["data"] == pytest.approx(model.predict(X[:2]).tolist())
