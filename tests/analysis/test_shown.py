"""A unit answers if the images of the bank that excite it most show what is asked, more often than the bank does."""

from openmaia.analysis.search import TextSearch
from openmaia.analysis.shown import find_shown

BANK = [*(f"a boat {n}" for n in range(10)), *(f"a cat {n}" for n in range(190))]


def test_unit_whose_images_show_it_has_the_counts():
    (evidence,) = find_shown(TextSearch("which units respond to boats?"), BANK, [[*BANK[:8], *BANK[10:17]]])
    assert evidence is not None
    assert (evidence.shown, evidence.of, evidence.base) == (8, 15, 0.05) and evidence.q < 1e-6
    assert evidence.text == "8 of 15 best bank images (base 0.05)"


def test_unit_whose_images_show_it_as_often_as_the_bank_has_none():
    frequent = find_shown(TextSearch("cats"), BANK, [BANK[10:25], BANK[:15]])
    assert frequent == [None, None], "all images of a unit show cats, as nearly all of the bank do"


def test_few_images_among_many_units_are_no_evidence():
    lonely = [[BANK[0], *BANK[10 + n : 24 + n]] for n in range(40)]
    assert find_shown(TextSearch("boats"), BANK, lonely) == [None] * 40
    assert find_shown(TextSearch("zebras"), BANK, [BANK[:15]]) == [None]
