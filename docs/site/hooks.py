"""The hook of MkDocs that adds what is generated: the references of keys and commands, the results, and the notebooks."""

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from openmaia.agent.tools.api_text import CONDITIONAL, api_text
from openmaia.core.units import Scope

sys.path.insert(0, str(Path(__file__).parent))
import command_reference
import config_reference
import notebooks

REPOSITORY = Path(__file__).parents[2]
RESULTS = {
    "world.md": ("Networks that learned drawn scenes", "measure/world/RESULTS.md"),
    "networks.md": ("Training on drawn scenes", "measure/world/training/README.md"),
    "sentences.md": ("Sentences about drawn scenes", "measure/world/eyes/RESULTS.md"),
    "science.md": ("Descriptions of the scripted experimenter", "measure/science/RESULTS.md"),
    "agents.md": ("Agents on units of known truth", "measure/agents/agents.md"),
    "language-model.md": ("A language model as the agent", "measure/language_model/RESULTS.md"),
    "applications.md": ("Biases of classifiers", "measure/applications/RESULTS.md"),
    "spurious.md": ("Spurious features", "openmaia/recipes/spurious/RESULTS.md"),
    "benchmarks.md": ("Pools, sweeps and exemplars", "measure/benchmarks/RESULTS.md"),
    "gpu.md": ("Large models on a GPU", "tests/gpu/RESULTS.md"),
    "faults.md": ("Processes that die", "measure/faults/RESULTS.md"),
    "cluster.md": ("Jobs and faults on a cluster", "cluster/RESULTS.md"),
}
"""Pages of results: the title of each, and the committed file whose text it shows."""

AGENT_API = """# What an agent calls

The text that the agent reads in its prompt. It is generated from the signatures and docstrings in
`openmaia/agent/tools/`, and so is this page. A person gets the same objects from [`openmaia.open`](python.md).

## A question about a unit

```{{ .text .wrap }}
{unit}
```

## A question about a layer or the network

`system` is another object; `tools` are the same.

```{{ .text .wrap }}
{layer}
```
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages to those of the folder `docs`."""
    pages: dict[str, str | bytes] = {
        "reference/config.md": config_reference.render(),
        "reference/cli.md": command_reference.render(),
        "reference/agent-api.md": AGENT_API.format(
            unit=api_text({}, available=CONDITIONAL),
            layer=api_text({}, Scope.LAYER).partition("\n`tools`")[0],
        ),
    }
    for page, (title, source) in RESULTS.items():
        pages[f"results/{page}"] = _results(title, source)
    for path in sorted((REPOSITORY / "docs/notebooks").glob("*.ipynb")):
        pages |= notebooks.render(path)
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def _results(title: str, source: str) -> str:
    """Returns the text of a file of results under another title, with a line that names the file."""
    text = (REPOSITORY / source).read_text().partition("\n")[2]
    return f"# {title}\n\nThis page is the file `{source}`, which is committed beside what measured it.\n{text}"
