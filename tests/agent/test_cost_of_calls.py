"""What the agent's code makes its parent do: work counts for the limits, and what is held in memory is bounded."""

from openmaia.assembly import investigations
from openmaia.config.loading import load
from openmaia.runs.records import Stop
from tests.agent.conftest import Investigate
from tests.helpers.investigating import ANSWER, code, said

SHORT = ("limits.turns=2", "limits.soft_turns=1")
SEEN = "image = system.call_neuron(tools.text2image(['a red circle']))[1][0]\n"


def test_work_for_calls_has_the_limit_of_an_experiment(run: Investigate):
    # A large image, so that nearly all of the work is the parent's, however busy the machine is.
    large = "import PIL.Image\nimage = system.call_neuron([PIL.Image.new('RGB', (1200, 1200))])[1][0]\n"
    endless = code(f"{large}while True: tools._call('pixels', image.id, 'masked')")
    record = run(endless, ANSWER, overrides=(*SHORT, "sandbox.seconds=1"))
    assert "the calls of the experiment took more than 1 s to decode, check and encode" in said(record, 0)
    assert record.turns[0].status == "timeout" and record.stop is Stop.ANSWER


def test_work_for_calls_counts_for_the_limit_of_the_investigation(run: Investigate):
    large = "import PIL.Image\npicture = PIL.Image.new('RGB', (1000, 1000))\n"
    endless = code(f"{large}while True: system.call_neuron([picture] * 4)")
    record = run(endless, ANSWER, overrides=(*SHORT, "limits.minutes=0.03"))
    turn = record.turns[0]
    assert "used up limits.minutes=0.03" in said(record, 0)
    assert turn.spent["tools"].requests == len(turn.calls)
    assert turn.spent["tools"].seconds > 0.05
    assert turn.work_seconds > 1.8


def test_number_of_displayed_images_is_bounded(run: Investigate):
    record = run(code(f"{SEEN}while True: tools.display(*[image.original] * 100)"), ANSWER, overrides=SHORT)
    assert "the experiment has displayed 1000 images" in said(record, 0)


def test_memory_of_images_is_what_is_reserved_beside_the_processes():
    run = ["name=x", "units=all", "target.name=t"]
    assert investigations.options(load(run)).held_mb == 400 - 150
    assert investigations.options(load([*run, "ray.memory_mb=1150"])).held_mb == 1000
    assert investigations.options(load([*run, "ray.memory_mb=50"])).held_mb == 64
