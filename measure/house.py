"""What the house costs: python measure/house.py [COMMIT] [--first COMMIT] prints a table in Markdown.

The first column is the commit that the work began with, the second COMMIT, or the working tree where none is given.
Rows that ask the program itself (config keys, verbs, a component of one's own) run in a process with that tree's code.
The journeys through several packages (a text2image, an activation) are not here: they were counted by reading.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
START = "b3ed11c"

SECTIONS = {"backbone", "generator", "editor", "viewer", "target", "pictures", "writer", "judge"}
# Kinds of models, for comparisons whose section has another name there (`service.kind == "diffusers"`).
KINDS = {"scripted", "replay", "labels", "vllm", "openai", "anthropic", "collage", "diffusers", "network", "synthetic"}
KINDS |= {"closed_form", "rules", "detector", "eyes"}
KIND_TABLES = {"SERVED", "SERVERS", "CLASSES"}
OFFLINE_WORDS = re.compile(r"collage|\bscripted|closed.?form|\beyes\b", re.IGNORECASE)
# The modules that hold checks before a run. The first six were the rooms of the commit that the work began with.
CHECKS = (
    "config/checks.py", "config/uses.py", "cli/assembly/validation.py", "assembly/validation.py", "cli/doctor", "distributed/cluster/preflight.py",
    "distributed/launchers/checking.py", "distributed/launchers/requirements.py", "distributed/launchers/sizes.py", "checks",
)  # fmt: skip
# A gloss, as it stands in docstrings: "A sweep is the …", "the backbone (the model that …)", "a replica, a process that …".
TERM = (
    "(?:target|unit|exemplar|mask|investigation|replicate|backbone|turn|experiment|sandbox|hypothes[ei]s|label|abstention"
    "|evidence rule|contrast|near miss|generator|editor|viewer|component|claim|writer|trial|control|AUC|look|verdict|judge"
    "|baseline|run|plan|record|journal|sweep|service|pool|replica|dispatcher|driver|lease|bundle)(?:s|es)?"
)
GLOSSES = (
    re.compile(rf"^(?:An?|The|All)?\s*{TERM} (?:is|are|means) (?:an?|the|one|what|how|all|whatever)\b", re.IGNORECASE),
    re.compile(rf"\b{TERM} \((?:an?|the|one|that|which|what) \w+[^)]*\)", re.IGNORECASE),
    re.compile(rf"\b{TERM}, (?:an?|the) [^,.]*\b(?:that|which|who)\b[^,.]*", re.IGNORECASE),
)
OWN_COMPONENT = """
from dataclasses import dataclass
from openmaia.core import components
@dataclass
class OwnConfig(components.GeneratorConfig):
    colour: str = "red"
class Own(components.Component):
    Config = OwnConfig
"""
LOAD_OWN = """
from openmaia.config.loading import load
print(load([{config!r}, "generator.kind=own_parts:Own", "generator.colour=blue"]).generator.colour)
"""


class Tree:
    """The files of one commit, or of the working tree, below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = self.texts("openmaia", "ray_jobs", suffixes=(".py",))
        self.parsed = {path: ast.parse(text) for path, text in self.modules.items()}

    def texts(self, *folders: str, suffixes: tuple[str, ...] = ()) -> dict[str, str]:
        """Returns texts of the files below `folders` by their paths."""
        found: dict[str, str] = {}
        for path in sorted(each for folder in folders for each in (self.root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and (not suffixes or path.suffix in suffixes):
                found[path.relative_to(self.root).as_posix()] = path.read_text(errors="replace")
        return found

    def ask(self, program: str, folder: str = "") -> str:
        """Returns the last line that `program` prints when it runs with this tree's code, "" if it fails."""
        path = os.pathsep.join(filter(None, (str(self.root), folder)))
        environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=folder or self.root, env=environment, capture_output=True, text=True)
        return done.stdout.strip().splitlines()[-1] if done.returncode == 0 and done.stdout.strip() else ""


def text_statements(module: ast.Module) -> list[ast.Constant]:
    """Returns docstrings, and strings below fields, which are docstrings to the reference."""
    values = (node.value for node in ast.walk(module) if isinstance(node, ast.Expr))
    return [value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]


def code_lines(text: str, module: ast.Module) -> list[str]:
    """Returns lines of code: without docstrings, comments that have a line to themselves, and empty lines."""
    docs = {line for node in text_statements(module) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    lines = enumerate(text.splitlines(), 1)
    return [line for number, line in lines if number not in docs and line.strip() and not line.strip().startswith("#")]


def size(tree: Tree) -> str:
    """Measures lines of the program, and how many of them are code."""
    lines = sum(text.count("\n") for text in tree.modules.values())
    code = sum(len(code_lines(text, tree.parsed[path])) for path, text in tree.modules.items())
    return f"{lines:,} ({code:,})"


def compares_kind(node: ast.AST) -> bool:
    """Returns whether a node compares the kind of a model: `config.backbone.kind in SERVED`, `match target.kind`."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
    elif isinstance(node, ast.Match):
        sides = [node.subject, *(case.pattern for case in node.cases)]
    else:
        return False
    kinds = [side for side in sides if isinstance(side, ast.Attribute) and side.attr == "kind"]
    names = {each for side in sides for part in ast.walk(side) if (each := _name(part))}
    return bool(kinds) and any(_name(side.value) in SECTIONS or names & (KINDS | KIND_TABLES) for side in kinds)


def _name(node: ast.AST) -> object:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else node.value if isinstance(node, ast.Constant) else None


def kind_comparisons(tree: Tree) -> str:
    """Measures places that compare the kind of a model, and the files that hold them."""
    counts = {path: sum(map(compares_kind, ast.walk(module))) for path, module in tree.parsed.items()}
    return f"{sum(counts.values())} in {sum(map(bool, counts.values()))}"


def files_to_touch(tree: Tree, pattern: str) -> str:
    """Measures files of code that name an example. Those whose own path names it count as one: they are the example."""
    codes = {path: "\n".join(code_lines(text, tree.parsed[path])) for path, text in tree.modules.items()}
    named = [path for path, code in codes.items() if re.search(pattern, code)]
    others = [path for path in named if not re.search(pattern, path)]
    return str(len(others) + (len(others) < len(named)))


def lines_below(tree: Tree, pattern: str) -> str:
    """Measures lines of the modules below openmaia/ whose paths begin with a pattern."""
    named = [text for path, text in tree.modules.items() if re.match(f"openmaia/{pattern}", path)]
    return f"{sum(len(text.splitlines()) for text in named):,}"


def own_component(tree: Tree) -> str:
    """Measures whether a config can name a generator that is a class in a user's folder."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "own_parts.py").write_text(OWN_COMPONENT)
        program = LOAD_OWN.format(config=str(tree.root / "configs/efficientnet-lite0.yaml"))
        return "yes" if tree.ask(program, folder) == "blue" else "no"


def lines_of_checks(tree: Tree) -> str:
    """Measures lines of the modules in CHECKS, and of methods by which components state their problems and checks."""
    rooms = tuple(f"openmaia/{each}" for each in CHECKS)
    total = 0
    for path, text in tree.modules.items():
        if path in rooms or path.startswith(tuple(f"{room}/" for room in rooms)):
            total += text.count("\n")
        elif path.startswith(("openmaia/models/", "openmaia/offline/")):
            total += sum(
                (member.end_lineno or 0) - member.lineno + 1
                for node in ast.walk(tree.parsed[path]) if isinstance(node, ast.ClassDef)
                for member in node.body if isinstance(member, ast.FunctionDef) and member.name in ("problems", "checks")
            )  # fmt: skip
    return f"{total:,}"


def offline_words(tree: Tree) -> str:
    """Measures files outside of offline/ that use words of the offline world: code, docstrings, templates."""
    texts = tree.texts("openmaia", "ray_jobs", suffixes=(".py", ".j2", ".json", ".js", ".html", ".css"))
    outside = (text for path, text in texts.items() if not path.startswith("openmaia/offline/"))
    return str(sum(bool(OFFLINE_WORDS.search(text)) for text in outside))


def repeated_constants(tree: Tree) -> str:
    """Measures names of public constants that several modules define."""
    modules = Counter(name for module in tree.parsed.values() for name in set(_constants(module)))
    return f"{sum(count > 1 for count in modules.values())} of {len(modules)}"


def _constants(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
            yield from (name for name in names if re.fullmatch(r"[A-Z][A-Z0-9_]*", name))


def glosses(tree: Tree) -> Iterator[str]:
    """Yields sentences of docstrings that explain a word of the glossary. A heuristic: see GLOSSES."""
    for module in tree.parsed.values():
        for node in text_statements(module):
            parts = re.split(r"(?<=[.:])\s+(?=[A-Z`])|\n\s*\n", str(node.value))
            sentences = (" ".join(part.split()) for part in parts)
            yield from (each for each in sentences if any(pattern.search(each) for pattern in GLOSSES))


def soft_turns(tree: Tree) -> str:
    """Measures files in which the key limits.soft_turns occurs, and how many of them are code."""
    texts = tree.texts("openmaia", "ray_jobs", "configs", "cluster")
    named = [path for path, text in texts.items() if "soft_turns" in text]
    return f"{len(named)} ({sum(path.endswith('.py') for path in named)})"


EACH = "1, and its test and docs"
VERBS = "import typer; from openmaia.cli.main import app; print(len(typer.main.get_command(app).commands))"
KEYS = "from openmaia.config.loading import config_keys; print(len(config_keys()))"
ROWS = {
    "files of openmaia/ and ray_jobs/": ("about 120", lambda tree: str(len(tree.modules))),
    "lines of them (code)": ("30,000 to 36,000 are expected; no goal", size),
    "places that compare a model's kind, in files": ("1", kind_comparisons),
    "files to touch for a generator (example: collage)": (EACH, lambda tree: files_to_touch(tree, "(?i)collage")),
    "files to touch for a generator (example: diffusers)": (EACH, lambda tree: files_to_touch(tree, "(?i)diffus")),
    "files to touch for a generator (example: images API)": (EACH, lambda tree: files_to_touch(tree, "(?i)images_?api")),
    "files to touch for a target kind (example: synthetic)": (EACH, lambda tree: files_to_touch(tree, "(?i)synthetic")),
    "files to touch for a tool (example: summarize_images)": (EACH, lambda tree: files_to_touch(tree, "summarize_images")),
    "files to touch for a metric (example: z_difference)": (EACH, lambda tree: files_to_touch(tree, "(?i)z_difference")),
    "a user's own generator in a config": ("yes", own_component),
    "lines of distributed/ without launchers": ("about 2,600", lambda tree: lines_below(tree, "distributed/(?!launch)")),
    "lines of them that are pools": ("about 1,500", lambda tree: lines_below(tree, "distributed/pools/")),
    "lines of checks before a run": ("about 900", lines_of_checks),
    "files with words of the offline world outside of it": ("0", offline_words),
    "config keys": ("about 220", lambda tree: tree.ask(KEYS) or "fails"),
    "public constants with several definitions": ("0", repeated_constants),
    "sentences that explain a word of the glossary": ("0", lambda tree: str(len(list(glosses(tree))))),
    "files that name limits.soft_turns (code)": ("at most 7", soft_turns),
    "verbs of the command line": ("about 12, at most 20", lambda tree: tree.ask(VERBS) or "fails"),
}  # fmt: skip


def measure(root: Path) -> dict[str, str]:
    """Returns the figure of each row for the tree below `root`."""
    tree = Tree(root)
    return {name: row(tree) for name, (_, row) in ROWS.items()}


def measure_commit(commit: str) -> dict[str, str]:
    """Returns the figure of each row for a commit, all "?" where the clone does not have it."""
    packed = subprocess.run(["git", "archive", commit], cwd=HERE, capture_output=True)
    if packed.returncode:
        return dict.fromkeys(ROWS, "?")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
        return measure(Path(folder))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Measures what the house costs, beside the goals.")
    parser.add_argument("commit", nargs="?", help="default: the working tree")
    parser.add_argument("--first", default=START, help="commit of the first column; an empty one leaves it out")
    parser.add_argument("--glosses", action="store_true", help="print the sentences that the row about them counts")
    asked = parser.parse_args()
    if asked.glosses:
        print(*glosses(Tree(HERE)), sep="\n")
        return
    columns = {asked.first: measure_commit(asked.first)} if asked.first else {}
    columns[asked.commit or "working tree"] = measure_commit(asked.commit) if asked.commit else measure(HERE)
    print("| row |", *(f"{name} |" for name in columns), "goal |")
    print("|---|" + "---|" * (len(columns) + 1))
    for name, (goal, _) in ROWS.items():
        print(f"| {name} |", *(f"{figures[name]} |" for figures in columns.values()), f"{goal} |")


if __name__ == "__main__":
    main()
