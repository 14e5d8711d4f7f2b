"""``python -m studies``: run, prepare, table, together, list, figure, pages, moved, merge."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from localma.errors import InvalidInputError, LocalMAError, unknown_name
from studies.harness import Study, load_study, study_names
from studies.moved import moved_means
from studies.pages import FIGURES, draw_figures, write_pages
from studies.prepare import prepare
from studies.running import RESULTS, Request, run
from studies.storage import Store, merge_line, read_compact
from studies.summary import results_of, runs_of, write_summary
from studies.tables import render_stored
from studies.together import render_together
from studies.workers import serve


def parse_cells(text: str | None) -> dict[str, tuple[str, ...]]:
    """Values allowed for each key: ``setting=S1|S2;n=100``.

    A comma also separates keys if each part has an equals sign.

    >>> parse_cells("setting=S1|S2,n=100")
    {'setting': ('S1', 'S2'), 'n': ('100',)}
    """
    if not text:
        return {}
    parts = text.split(";" if ";" in text else ",")
    if not all("=" in part for part in parts):
        raise InvalidInputError(
            f"--cells takes key=value pairs such as 'setting=S1|S2,n=100'; received {text!r}. "
            "If a value has a comma, separate the pairs by semicolons."
        )
    pairs = (part.split("=", 1) for part in parts)
    return {key.strip(): tuple(v.strip() for v in value.split("|")) for key, value in pairs}


def check_request(study: Study, request: Request) -> None:
    """Refuse methods and cells that the study does not have."""
    for method in request.methods or ():
        if method not in study.methods:
            raise unknown_name("method", method, study.methods)
    if not any(request.picks(cell) for cell in study.cells):
        raise InvalidInputError(
            f"--cells and --quick must leave at least one cell of {study.name!r}; received "
            f"{request.where}. The first cell is {dict(study.cells[0].keys)}."
        )


def command_run(arguments: argparse.Namespace) -> None:
    request = Request(
        arguments.replicates,
        parse_cells(arguments.cells),
        arguments.methods and tuple(arguments.methods.split(",")),
        arguments.quick,
        arguments.workers,
        arguments.again,
        arguments.ray,
    )
    check_request(load_study(arguments.name), request)
    print(f"summary: {run(arguments.name, request, arguments.results)}", file=sys.stderr)


def command_prepare(arguments: argparse.Namespace) -> None:
    prepare(arguments.name, arguments.size)


def command_table(arguments: argparse.Namespace) -> None:
    study = load_study(arguments.name)
    text = render_stored(study, Store(arguments.results, study.name))
    print(text or f"Nothing has been run yet. Use: python -m studies run {arguments.name}")


def command_list(arguments: argparse.Namespace) -> None:
    for name in study_names():
        study = load_study(name)
        wanted = sum(cell.replicates for cell in study.cells)
        done = len(Store(arguments.results, study.name).load())
        print(f"{name:20} {study.title}; {done} of {wanted} replicates started")


def command_figure(arguments: argparse.Namespace) -> None:
    studies = [load_study(name) for name in study_names()]
    figures = {name: (study, draw) for study in studies for name, draw in study.figures.items()}
    if arguments.name not in figures:
        raise unknown_name("figure", arguments.name, figures)
    study, draw = figures[arguments.name]
    for path in draw(results_of(Store(arguments.results, study.name).load()), arguments.out):
        print(path)


def command_pages(arguments: argparse.Namespace) -> None:
    for path in [*draw_figures(arguments.results), *write_pages(arguments.results)]:
        print(path)


def command_together(arguments: argparse.Namespace) -> None:
    studies = [load_study(name) for name in study_names()]
    found = [(s, results_of(Store(arguments.results, s.name).load())) for s in studies]
    print(render_together(found) or "Nothing has been run yet.")


def command_moved(arguments: argparse.Namespace) -> None:
    study, before = load_study(arguments.name), {}
    for line in read_compact(arguments.other):
        merge_line(before, line)
    after = Store(arguments.results, study.name).load()
    print(moved_means(study, results_of(before), results_of(after)))


def command_merge(arguments: argparse.Namespace) -> None:
    study = load_study(arguments.name)
    store = Store(arguments.results, study.name)
    with store.lock():
        replicates = store.load()
        for line in read_compact(arguments.other):
            merge_line(replicates, line)
        theirs = runs_of(Store(arguments.other.parent, study.name))  # if it is in the same folder
        write_summary(study, store, replicates, theirs)
        store.fold(replicates)


def command_work(arguments: argparse.Namespace) -> None:
    serve(arguments.name)


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    commands = parser.add_subparsers(required=True)

    def add(name: str, words: str, takes_name: bool = True) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=words, description=words)
        command.set_defaults(command=globals()[f"command_{name}"])
        command.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
        if takes_name:
            command.add_argument("name")
        return command

    running = add("run", "compute the missing replicates of a study and write its summary")
    running.add_argument("--replicates", type=int, help="at most this number per cell")
    running.add_argument("--cells", help="only these cells, such as 'setting=S1|S2,n=100'")
    running.add_argument("--methods", help="only these methods, such as paper,gw,ewma")
    running.add_argument("--quick", action="store_true", help="two replicates of the quick cells")
    running.add_argument("--workers", type=int, default=Request.workers)
    running.add_argument(
        "--again", action="store_true", help="replace stored figures of these methods and cells"
    )
    running.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="run on a Ray cluster; without an address that of RAY_ADDRESS, or a new one here",
    )
    preparing = add("prepare", "compute the files that a study stores outside the repository")
    preparing.add_argument("--size", default="full", help="'small' for --quick")
    add("table", "print the tables of a study, with published figures next to ours")
    add("together", "compare auto with other methods on all real data", takes_name=False)
    add("list", "list the studies", takes_name=False)
    drawing = add("figure", "draw a figure (needs the extra 'plot')")
    drawing.add_argument("--out", type=Path, default=FIGURES)
    add("pages", "put all results into the pages, and draw all figures", takes_name=False)
    merging = add("merge", "add the replicates of another machine")
    merging.add_argument("other", type=Path, help="the compact file of the other machine")
    moving = add("moved", "name the means that moved since earlier results")
    moving.add_argument("other", type=Path, help="the compact file of the earlier results")
    add("work", "run as a worker process (used by 'run')")
    return parser


def main() -> int:
    """Run one command. An expected error is printed as a sentence, not as a traceback."""
    arguments = make_parser().parse_args()
    try:
        arguments.command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # from `| head`; the last flush must not fail either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except LocalMAError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: finished replicates are stored; run it again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
