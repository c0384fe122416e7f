"""Find the keys of a study's [experiment] that it has no use for: most are about comparing variants.

Records of earlier versions have such keys. They are refused where the user's own file is read, not by the types.
"""

from __future__ import annotations

import msgspec

from pgdyno.errors import SpecError
from pgdyno.spec.complaint import find_line
from pgdyno.spec.study import Study
from pgdyno.spec.variant import ExperimentSpec

_OF_SEARCH = frozenset({"minutes", "confidence"})
_OF_SCALING = frozenset({"detect", "confidence"})


def check_used(study: Study, *, source: str, text: str) -> None:
    """Refuse a study whose [experiment] has a key without effect.

    Args:
        study: The study.
        source: Its name in errors.
        text: Its TOML text.

    Raises:
        SpecError: There is one.
    """
    for key in (field.name for field in _list_unused(study)):
        line = find_line(text, f"experiment.{key}")
        raise SpecError(
            f"{source}, line {line}: {key} of [experiment] has no effect: {_describe_use(study)}",
            hint=f"leave it out{_suggest(study, key)}",
        )


def without_unused(study: Study) -> ExperimentSpec:
    """Return the study's [experiment] without the keys that have no effect."""
    return msgspec.structs.replace(study.experiment, **{field.name: field.default for field in _list_unused(study)})


def _list_unused(study: Study) -> list[msgspec.structs.FieldInfo]:
    if study.is_comparison:
        return []
    used = _OF_SEARCH if study.search is not None else _OF_SCALING if study.scaling is not None else frozenset()
    fields = [field for field in msgspec.structs.fields(study.experiment) if field.name not in used]
    return [field for field in fields if getattr(study.experiment, field.name) != field.default]


def _describe_use(study: Study) -> str:
    if study.search is not None:
        return "it applies to comparisons, not to a search"
    if study.scaling is not None:
        return "it is for the comparison before [scaling], and this study compares nothing"
    return "the study compares nothing"


def _suggest(study: Study, key: str) -> str:
    if study.search is not None:
        return "; resolution of [search] says how close the answer is to be" if key == "detect" else ""
    if study.scaling is not None:
        return "; [scaling] has its own" if key in {"minutes", "design"} else ""
    length = "; rounds and duration of [trials] say how long it takes" if key == "minutes" else ""
    return f", or compare with [[variant]] or [[sweep]]{length}"
