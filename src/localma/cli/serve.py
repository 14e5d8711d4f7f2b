"""``localma serve``: a model behind an address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from localma.cli.app import ModelFile, Trust, option
from localma.serving import Settings
from localma.serving.run import serve as run

MIB = 2**20


def serve(
    model: ModelFile,
    name: Annotated[
        str | None, Option(help="Name of the model in addresses; default: that of the file.")
    ] = None,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("NUMBER", "Port to listen on.", min=0, max=65535)] = 8080,
    workers: Annotated[int, option("NUMBER", "Number of processes.", min=1)] = 1,
    max_body: Annotated[float, option("MIB", "Largest request in MiB.", min=0.001)] = 8.0,
    max_rows: Annotated[int, option("NUMBER", "Most rows of a request.", min=1)] = 10_000,
    timeout: Annotated[float, option("SECONDS", "Time for a request.", min=0.001)] = 30.0,
    concurrency: Annotated[
        int, option("NUMBER", "Answers computed at once in a process.", min=1)
    ] = 4,
    queue: Annotated[
        int, option("NUMBER", "Requests that wait in a process; others get 429.", min=0)
    ] = 64,
    grace: Annotated[
        float, option("SECONDS", "Time for requests under way after SIGTERM.", min=0.0)
    ] = 20.0,
    reload: Annotated[
        float, option("SECONDS", "Time between looks at the file; 0: never.", min=0.0)
    ] = 1.0,
    monitor: Annotated[
        Path | None,
        Option(help="Folder for the states of monitors of all answers.", show_default=False),
    ] = None,
    trust: Trust = False,
) -> None:
    """Answer requests over HTTP with a model, by the Open Inference Protocol.

    Set LOCALMA_TOKEN to a secret that clients must send.

    Example: localma serve rent.localma --port 8080
    """
    run(
        Settings(
            path=model,
            name=name or "",
            trust=trust,
            host=host,
            port=port,
            workers=workers,
            max_body=round(max_body * MIB),
            max_rows=max_rows,
            timeout=timeout,
            concurrency=concurrency,
            queue=queue,
            grace=grace,
            reload=reload,
            monitor=monitor,
        )
    )
