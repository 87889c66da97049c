"""Metrics of detection on photographs, and of fuzzing, as `openmaia.evaluation.judging` measures them in a trial."""

from openmaia.evaluation.compared import Evaluation
from openmaia.evaluation.metric import Metric, MetricPlace

_PAGE: frozenset[MetricPlace] = frozenset({"page"})
_SUMMARY: frozenset[MetricPlace] = frozenset({"summary", "page"})


def _detection(
    name: str, title: str, order: int, shown: frozenset[MetricPlace], project: str = "", *, falls: bool = True
) -> Metric:
    def read(evaluation: Evaluation) -> float | None:
        return evaluation.trial.detection.get(name)

    return Metric(
        name=f"detection_{name}",
        title=title,
        project=project,
        order=order,
        compute=read,
        bounds=None if name == "correlation" else (0, 1),
        falls=falls,
        shown=shown,
    )


RESPONSIVENESS = _detection("responsiveness", "responsiveness", 600, _SUMMARY, "FADE")
PURITY = _detection("purity", "purity", 610, _SUMMARY, "FADE")
BALANCED = _detection("balanced_accuracy", "detection, balanced accuracy", 620, _SUMMARY, "delphi")
FUZZING = _detection("fuzzing", "fuzzing, balanced accuracy", 630, _SUMMARY, "delphi")
CORRELATION = _detection("correlation", "correlation", 640, _SUMMARY, "simulation by yes or no")
AUPRC = _detection("auprc", "detection: AUPRC", 650, frozenset({"comparison", "page"}))
F1 = _detection("f1", "detection: F1", 660, _PAGE)
IOU = _detection("iou", "detection: graded IoU", 670, _PAGE)
MASK_IOU = _detection("mask_iou", "detection: mask IoU (not put to our sanity tests)", 680, _PAGE, falls=False)
